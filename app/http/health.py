"""`GET /v1/models`, `/healthz`, `/readyz`, `/health`, `/version`, `/`, and the operators' `/metrics` and `/admin/*` reads."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from app.access.service import AccessService
from app.config.version import VERSION
from app.engines.pool import EnginePool
from app.errors.tree import UnknownModel
from app.http.openapi import sends
from app.http.replies import reply, reply_headers
from app.promotion.service import PromotionService
from app.proxy.handler import ProxyHandler
from app.stream.conduct import Conduct
from app.telemetry.metrics import Metrics
from deploy.engine.engine import EngineState
from deploy.engine.spec import EngineSpec


def public_router(pool: EnginePool, proxy: ProxyHandler, created: int, apis: Sequence[str] = ()) -> APIRouter:
    """Routes of the public listener that are not proxy. `created` is Unix time in seconds, `apis` are its POST paths."""
    routes = about_router(pool, proxy, apis)

    def describe(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "manners"}

    @routes.get("/v1/models")
    async def models(request: Request) -> Response:
        return reply(request, {"object": "list", "data": [describe(name) for name in pool.config.models]})

    @routes.get("/v1/models/{name}")
    async def model(request: Request, name: str) -> Response:
        if name not in pool.config.models:
            raise UnknownModel(f"there is no model {name[:64]!r} here")
        return reply(request, describe(name))

    @routes.get("/healthz")
    async def healthz(request: Request) -> Response:
        return reply(request, {"status": "ok"})

    @routes.get("/readyz")
    async def readyz(request: Request) -> Response:
        if proxy.leaving:
            return reply(request, {"status": "draining"}, 503)
        if not pool.is_ready:
            return reply(request, {"status": "no engine is ready"}, 503)
        told = {"ungated": pool.ungated, "refused": pool.refused()}
        return reply(request, {"status": "ready", **{name: what for name, what in told.items() if what}})

    return routes


def _replies(spec: EngineSpec, state: EngineState | None, conduct: Conduct) -> dict[str, str | None]:
    """Whether it keeps thoughts out of its replies, how its model writes calls, and why that does not fit its chat template."""
    found = state.abilities if state else None
    return {
        "conduct": conduct,
        "format": (found and found.format) or spec.format,
        "format_misfit": (found and found.misfit) or None,
    }


def about_router(pool: EnginePool, proxy: ProxyHandler, apis: Sequence[str]) -> APIRouter:
    """The routes that a newcomer, or a tool made for an engine, asks first."""
    routes = APIRouter()

    @routes.get("/")
    async def help(request: Request) -> Response:
        usage = {"post": [*apis], "get": ["/v1/models", "/healthz", "/readyz", "/version", "/openapi.json"]}
        return reply(request, {"name": "manners", "version": VERSION, **usage})

    @routes.get("/version")
    async def version(request: Request) -> Response:
        return reply(request, {"version": VERSION})

    @routes.get("/health")
    async def health(request: Request) -> Response:
        """Whether it can answer, as engines' own `/health` says it."""
        serves = pool.is_ready and not proxy.leaving
        return reply(request, {"status": "ok" if serves else "unavailable"}, 200 if serves else 503)

    return routes


def admin_router(
    pool: EnginePool,
    proxy: ProxyHandler,
    metrics: Metrics,
    promotions: PromotionService,
    access: AccessService,
) -> APIRouter:
    """Read-only routes of the operators' listener."""
    routes = APIRouter()

    _add_metrics(routes, metrics, promotions)

    @routes.get("/healthz")
    async def healthz(request: Request) -> Response:
        return reply(request, {"status": "ok"})

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
        running = {name: asdict(state) for name, state in states.items()}
        listed = [
            {
                "name": name,
                "dialect": spec.dialect,
                "driver": spec.driver,
                "kind": spec.kind,
                "digest": promotions.catalogue.digest_of(spec),
                "serves": [model for model in pool.config.models if name in pool.model_route(model).live],
                "state": str(running[name]["state"]) if name in running else "stopped",
                "url": running.get(name, {}).get("url"),
                "open": pool.open(name),
                "stays_out": pool.stays_out(name),
                "restarts": running.get(name, {}).get("restarts", 0),
                "last_error": running.get(name, {}).get("last_error"),
                **_replies(spec, states.get(name), pool.conduct(name)),
                "abilities": running.get(name, {}).get("abilities"),
            }
            for name, spec in (pool.config.engines | promotions.catalogue.kept()).items()
        ]
        return reply(request, {"engines": listed})

    return routes


def _add_metrics(routes: APIRouter, metrics: Metrics, promotions: PromotionService) -> None:
    @routes.get(
        "/metrics",
        response_class=Response,
        responses=sends("text/plain", "application/openmetrics-text"),
    )
    async def scrape(request: Request) -> Response:
        for model, standing in (await promotions.standings()).items():
            metrics.gate(model, standing.overrides, standing.expects_report, standing.override_ended)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers=reply_headers(request), media_type=content_type)
