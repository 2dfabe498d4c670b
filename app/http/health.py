"""`GET /v1/models`, `/healthz`, `/readyz`, `/health`, `/version`, and the operators' `/metrics` and `/admin/*` reads."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from app.access.service import AccessService
from app.config.version import VERSION
from app.engines.pool import EnginePool
from app.http.replies import reply, reply_headers
from app.promotion.service import PromotionService
from app.proxy.handler import ProxyHandler
from app.stream.thinking_control import PUBLIC, ThinkingControl
from app.telemetry.metrics import Metrics
from deploy.engine.engine import EngineState
from deploy.engine.spec import EngineSpec


def _tell(routes: APIRouter, path: str, tell: Callable[[], tuple[Any, int]]) -> None:
    """A route that answers everybody alike: with this body and status."""

    async def told(request: Request) -> Response:
        return reply(request, *tell())

    routes.add_api_route(path, told)


def public_router(pool: EnginePool, proxy: ProxyHandler, created: int) -> APIRouter:
    """Routes of the public listener that are not proxy. `created` is Unix time in seconds."""
    routes = APIRouter()

    def describe(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "manners"}

    def ready() -> tuple[Any, int]:
        if proxy.leaving or not pool.is_ready:
            return {"status": "draining" if proxy.leaving else "no engine is ready"}, 503
        told = {"ungated": pool.ungated, "refused": pool.refused()}
        return {"status": "ready", **{name: what for name, what in told.items() if what}}, 200

    def health() -> tuple[Any, int]:  # as engines' own `/health` says it
        serves = pool.is_ready and not proxy.leaving
        return {"status": "ok" if serves else "unavailable"}, 200 if serves else 503

    _tell(routes, "/version", lambda: ({"version": VERSION}, 200))
    _tell(routes, "/healthz", lambda: ({"status": "ok"}, 200))
    _tell(routes, "/readyz", ready)
    _tell(routes, "/health", health)
    _tell(
        routes, "/v1/models", lambda: ({"object": "list", "data": [*map(describe, pool.config.models)]}, 200)
    )

    @routes.get("/v1/models/{name}")
    async def model(request: Request, name: str) -> Response:
        pool.config.model(name)
        return reply(request, describe(name))

    return routes


def _seen(spec: EngineSpec, state: EngineState | None, control: ThinkingControl) -> dict[str, Any]:
    """An engine's state, from its process and probes. conduct: whether the engine keeps thoughts out of its replies; format: how its model
    writes calls, and format_misfit: why that does not fit its chat template."""
    found = state.abilities if state else None
    return {
        "state": str(state.state) if state else "stopped",
        "url": state.url if state else None,
        "restarts": state.restarts if state else 0,
        "last_error": state.last_error if state else None,
        "conduct": PUBLIC[control],
        "format": (found and found.format) or spec.format,
        "format_misfit": (found and found.misfit) or None,
        "abilities": asdict(found) if found else None,
    }


def admin_router(
    pool: EnginePool,
    proxy: ProxyHandler,
    metrics: Metrics,
    promotions: PromotionService,
    access: AccessService,
) -> APIRouter:
    """Read-only routes of the operators' listener."""
    routes = APIRouter()

    _tell(routes, "/healthz", lambda: ({"status": "ok"}, 200))

    @routes.get("/metrics", response_class=Response)
    async def scrape(request: Request) -> Response:
        for model, seen in (await promotions.standings()).items():
            metrics.gauge("manners_override_active", seen["overrides"], model)
            metrics.gauge("manners_report_expected", seen["report_expected"], model)
            metrics.gauge("manners_live_override_ended", seen["override_ended"], model)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers=reply_headers(request), media_type=content_type)

    @routes.get("/admin/status")
    async def status(request: Request) -> Response:
        known = await promotions.models()
        models = {
            name: {
                "fallback": model.fallback,
                "thinking": model.thinking,
                "speech": model.speech,
                **known.get(name, {}),
                "live": pool.model_route(name).first,
                "replicas": pool.model_route(name).live,
            }
            for name, model in pool.config.models.items()
        }
        serving = {"ready": pool.is_ready, "draining": proxy.leaving, "in_flight": proxy.in_flight}
        who = {"name": request.state.caller, "role": str(access.role(request.state.caller))}
        return reply(request, {**serving, "operator": who, "models": models})

    @routes.get("/admin/engines")
    async def engines(request: Request) -> Response:
        states = pool.states()
        listed = [
            {
                "name": (name := spec.name),
                "dialect": spec.dialect,
                "driver": spec.driver,
                "kind": spec.kind,
                "digest": digest,
                "serves": [model for model in pool.config.models if name in pool.model_route(model).live],
                "open": pool.open(name),
                "stays_out": pool.stays_out(name),
                **_seen(spec, states.get(name), pool.thinking_control(name)),
            }
            for digest, spec in promotions.catalogue.items()
        ]
        return reply(request, {"engines": listed})

    return routes
