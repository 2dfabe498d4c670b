"""The composition root: the only place where the parts are joined."""

import asyncio
import time
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.types import ASGIApp

from app.admin.console import OPEN, console_router
from app.admin.routes import operators_router
from app.api.chat_completions import ChatCompletions
from app.api.completions import Completions
from app.api.count_tokens import CountTokens
from app.api.embeddings import Embeddings
from app.api.messages import Messages
from app.api.responses import Responses
from app.api.surface import Surface
from app.config.config import Config, ConfigError
from app.engines.backend import EngineFactory, driver
from app.engines.pool import EnginePool
from app.errors import render
from app.http import health, openapi
from app.http.access import AccessControl
from app.http.hosts import LocalAccess
from app.http.keys import KeyRing
from app.promotion.memory_admission import MemoryAdmission
from app.promotion.service import PromotionService
from app.proxy.accounting import RequestAccounting
from app.proxy.handler import ProxyHandler
from app.proxy.tracing import Tracing
from app.shadow.recorder import Recorder, recorder_for
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from app.telemetry.reply_window import ReplyWindow
from app.telemetry.task_failures import OTHER, THREAD, watch_failures
from deploy.core.tasks import NAMES
from deploy.memory.guard import Guard
from deploy.memory.lease import Lease, lease_path

SURFACES: tuple[Surface, ...] = (
    ChatCompletions(),
    Messages(),
    CountTokens(),
    Responses(),
    Completions(),
    Embeddings(),
)
"""The APIs that are served over the one core."""


@dataclass(frozen=True)
class Gateway:
    """Two ASGI applications over one fleet."""

    config: Config
    pool: EnginePool
    promotions: PromotionService
    proxy: ProxyHandler
    reply_window: ReplyWindow
    metrics: Metrics
    log: Logger
    tracing: Tracing
    shadow: Recorder | None
    public: ASGIApp
    admin: ASGIApp

    async def start(self) -> None:
        """Take the registry, and begin to bring up who serves. Raises RegistryError."""
        watch_failures(asyncio.get_running_loop(), self.log, self.metrics.task_failed)
        await self.promotions.open()
        await self.promotions.start()

    async def stop(self) -> None:
        """Let go of everything."""
        await self.promotions.stop()
        await self.pool.stop()
        await self.tracing.close()
        if self.shadow is not None:
            await asyncio.to_thread(self.shadow.close)


def create_gateway(
    config: Config,
    admin_token: str,
    log: Logger,
    factory: EngineFactory = driver,
    tracing: Tracing | None = None,
) -> Gateway:
    """Join the parts. Nothing is started: `start()` is the caller's. Raises ConfigError."""
    tracing = tracing or tracing_for(config)
    metrics = Metrics()
    metrics.tasks((*NAMES, OTHER, THREAD))
    guard = Guard()
    _watch_memory(metrics, guard)
    pool = EnginePool(config, metrics, log, factory)
    reply_window = ReplyWindow()
    memory = MemoryAdmission(guard, Lease(lease_path(config.state_dir)))
    promotions = PromotionService(config, pool, metrics, log, memory, reply_window)
    shadow = recorder_for(config, log, metrics.shadow_dropped)
    proxy = ProxyHandler(
        config, pool, metrics, log, tracing, RequestAccounting(metrics, log, reply_window, shadow)
    )
    straight = {surface.path: proxy.at(surface) for surface in SURFACES}
    public = _application("Manners", log, "/openapi.json")
    public.include_router(health.public_router(config, pool, proxy, int(time.time()), [*straight]))
    openapi.document(public, SURFACES)
    admin = _application("Manners: operators", log, "/admin/openapi.json")
    admin.include_router(health.admin_router(config, pool, proxy, metrics, promotions))
    admin.include_router(operators_router(config, promotions))
    admin.include_router(console_router(config, promotions))
    local = LocalAccess(config.gateway.hosts)
    return Gateway(
        config,
        pool,
        promotions,
        proxy,
        reply_window,
        metrics,
        log,
        tracing,
        shadow,
        AccessControl(
            public,
            KeyRing(config.secrets.api_keys),
            ("/v1",),
            straight,
            takes_api_key=True,
            local=local if config.listen.is_loopback and not config.secrets.api_keys else None,
            turned_away=metrics.turned_away("public"),
            count=metrics.unreadable("public"),
        ),
        AccessControl(
            admin,
            KeyRing([admin_token]),
            ("/admin",),
            open_paths=OPEN,
            local=local if config.admin.is_loopback else None,
            turned_away=metrics.turned_away("admin"),
            count=metrics.unreadable("admin"),
        ),
    )


def tracing_for(config: Config) -> Tracing:
    """As the configuration asks. Raises ConfigError where the extra is missing."""
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is None:
        return Tracing()
    try:
        from app.proxy import otel
    except ImportError as error:
        cure = "install it with: pip install 'manners[otel]'"
        raise ConfigError(f"telemetry.otlp_endpoint: {error.name} is missing; {cure}") from None
    return otel.exporting(endpoint, config.listen)


def _application(title: str, log: Logger, openapi_url: str | None = None) -> FastAPI:
    app = FastAPI(title=title, openapi_url=openapi_url, docs_url=None, redoc_url=None, redirect_slashes=False)
    render.install(app, log)
    return app


def _watch_memory(metrics: Metrics, guard: Guard) -> None:
    """The host's memory as the guard reads it; 0 where nothing tells."""
    now = guard.memory()
    metrics.memory(
        lambda: float(seen.available) if (seen := guard.memory()) else 0.0, now.floor if now else 0.0
    )
