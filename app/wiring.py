"""The composition root: the only place where the parts are joined."""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, FastAPI, Request

from app.access.keys import KeyRing
from app.access.service import AccessService
from app.admin.access import access_router, role_guard
from app.admin.console import FILES, console_router
from app.admin.reload import Reloader
from app.admin.reports import Reports
from app.admin.routes import operators_router
from app.api.completions import Completions
from app.api.embeddings import Embeddings
from app.api.messages import Messages
from app.api.responses import Responses
from app.api.surface import ChatCompletions, Surface
from app.config.config import Config, ConfigError
from app.config.version import VERSION
from app.engines.backend import EngineFactory, driver
from app.engines.pool import EnginePool
from app.errors import render
from app.errors.tree import MannersError, Unauthorized
from app.http import health
from app.http.access import AccessControl
from app.http.connection import ConnectionLimits
from app.promotion.memory_admission import MemoryAdmission
from app.promotion.service import PromotionService
from app.proxy.accounting import RequestAccounting
from app.proxy.handler import ProxyHandler
from app.shadow.recorder import recorder_for
from app.telemetry.log import OTHER, THREAD, Logger, watch_failures
from app.telemetry.metrics import Metrics
from app.telemetry.reply_window import ReplyWindow
from deploy.core.tasks import NAMES
from deploy.memory.guard import Guard
from deploy.memory.lease import Lease, lease_path

SURFACES: tuple[Surface, ...] = (ChatCompletions(), Messages(), Responses(), Completions(), Embeddings())

if TYPE_CHECKING:  # an extra
    from app.proxy.otel import Spans


class Gateway:
    """Two ASGI applications over one engine pool."""

    def __init__(
        self,
        config: Config,
        admin_token: str,
        log: Logger,
        factory: EngineFactory = driver,
        tracing: "Spans | None" = None,
        read: Callable[[], Config] | None = None,
    ) -> None:
        """Join the parts, and start none. `read` reads the configuration again for a reload. Raises ConfigError."""
        self.config, self.log, self.metrics = config, log, (metrics := Metrics())
        self.tracing = tracing or tracing_for(config)
        metrics.begin("manners_task_failures_total", *((name,) for name in (*NAMES, OTHER, THREAD)))
        metrics.gauge("manners_build_info", 1, VERSION, platform.python_version())
        self.pool = pool = EnginePool(config, metrics, log, factory)
        self.reply_window = ReplyWindow()
        memory = MemoryAdmission(_watched_memory(metrics), Lease(lease_path(config.state_dir)))
        self.promotions = promotions = PromotionService(config, pool, metrics, log, memory, self.reply_window)
        shared = shared_limits(config, metrics)
        self.access = access = AccessService(config, admin_token, promotions.do, shared)
        self.shadow = recorder_for(config, log, partial(metrics.count, "manners_shadow_dropped_total"))
        observe = None if self.shadow is None else self.shadow.take
        accounting = RequestAccounting(metrics, log, self.reply_window, self.tracing, observe)
        self.proxy = proxy = ProxyHandler(config, pool, metrics, log, accounting, access.accounts)
        self.limits = ConnectionLimits(config.gateway.max_connections)
        set_limits(self.limits, config)
        takers = (pool.apply, proxy.apply, promotions.apply, partial(set_limits, self.limits))
        self.reloader = Reloader(config, read or (lambda: config), takers, access, promotions, metrics, log)
        reports = Reports(config.state_dir, promotions)
        surfaces = {surface.path: partial(proxy.answer, surface) for surface in SURFACES}
        callers = [health.public_router(pool, proxy, int(time.time()))]
        self.public = _listener(
            "public", "/v1", access.callers, callers, metrics, log, straight=surfaces, takes_api_key=True
        )
        operators = [
            health.admin_router(pool, proxy, metrics, promotions, access),
            operators_router(promotions, reports, access, self.reloader),
            access_router(access),
            console_router(reports),
        ]
        guard = role_guard(access)
        self.admin = _listener(
            "admin", "/admin", access.operators, operators, metrics, log, guard, open_paths=frozenset(FILES)
        )
        access.on_change(self._replace_keys)

    def _replace_keys(self, config: Config) -> None:
        """Give both listeners their keys; one without keys answers to this machine only."""
        access, local = self.access, frozenset(map(str.lower, config.gateway.hosts))
        self.public.replace(
            access.callers, local if config.listen.is_loopback and not access.callers else None
        )
        self.admin.replace(access.operators, local if config.admin.is_loopback else None)

    async def open(self) -> None:
        """Take the registry, and know from it who may call. Raises RegistryError, StateUnavailable."""
        watch_failures(
            asyncio.get_running_loop(), self.log, partial(self.metrics.count, "manners_task_failures_total")
        )
        await self.promotions.registry.open()
        await self.access.start()

    async def stop(self) -> None:
        """Let go of everything."""
        await self.access.stop()
        await self.promotions.stop()
        await self.pool.stop()
        if self.tracing is not None:
            await self.tracing.close()
        if self.shadow is not None:
            await asyncio.to_thread(self.shadow.close)


def set_limits(limits: ConnectionLimits, config: Config) -> None:
    """Of the listeners. A caller of a stream may read nothing for as long as its model's `idle` says."""
    limits.read_seconds = config.gateway.read_seconds
    idle = max(model.timeouts.idle for model in config.models.values())
    limits.write_seconds = max(limits.read_seconds, idle)


def _listener(
    name: str,
    guarded: str,
    keys: KeyRing,
    routers: Sequence[APIRouter],
    metrics: Metrics,
    log: Logger,
    role: Callable[[Request], Awaitable[None]] | None = None,
    **more: Any,
) -> AccessControl:
    """The application of a listener, behind its keys. `role` is asked before each route."""
    dependencies = [Depends(role)] if role else []
    app = FastAPI(openapi_url=None, redirect_slashes=False, dependencies=dependencies)
    render.install(app, log)
    for router in routers:
        app.include_router(router)
    metrics.begin("manners_unauthorized_total", (name,))

    def refused(error: MannersError) -> None:
        if isinstance(error, Unauthorized):
            metrics.count("manners_unauthorized_total", name)
        else:
            metrics.count("manners_unreadable_total", name, error.code)

    return AccessControl(app, keys, guarded, count=refused, **more)


def tracing_for(config: Config) -> "Spans | None":
    """As the configuration asks. Raises ConfigError where the extra is missing."""
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is None:
        return None
    try:
        from app.proxy import otel
    except ImportError as error:
        cure = "pip install opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2"
        raise ConfigError(f"telemetry.otlp_endpoint: {error.name} is missing; {cure}") from None
    return otel.exporting(endpoint, config.listen)


def shared_limits(config: Config, metrics: Metrics) -> Any:
    """`app.access.shared.SharedLimits`, or None, as the configuration asks. Raises ConfigError."""
    metrics.gauge("manners_limits_available", 1)
    if (url := config.gateway.limits) is None:
        return None
    try:
        from app.access.shared import SharedLimits

        return SharedLimits(url, metrics.child("manners_limits_available").set)
    except ImportError as error:
        raise ConfigError(f"gateway.limits: {error.name} is missing; pip install redis==8.1.0") from None
    except ValueError as error:
        raise ConfigError(f"gateway.limits: {error}") from None


def _watched_memory(metrics: Metrics) -> Guard:
    """The guard of the host's memory, and what it reads in the metrics; 0 where it cannot be read."""
    guard = Guard()
    now = guard.memory()
    available = metrics.child("manners_host_memory_available_bytes")
    available.set_function(lambda: seen.available if (seen := guard.memory()) else 0.0)
    metrics.gauge("manners_host_memory_floor_bytes", now.floor if now else 0.0)
    return guard
