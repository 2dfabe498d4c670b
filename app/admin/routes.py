"""The operators' API over HTTP: promote, roll back, follow, cancel, reports, overrides and the audit.

A request that begins an operation is answered 202; the operation goes on if the client hangs up.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from pydantic import AliasPath, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.responses import Response, StreamingResponse

from app.access.service import AccessService, RegistryRunner
from app.admin.reload import Reloader
from app.admin.reports import Reports
from app.api.reading import field_error, json_object
from app.config.config import MAX_REPLICAS
from app.errors.tree import BadHTTP, StateUnavailable, Unauthorized
from app.http.replies import reply, reply_headers
from app.promotion import overrides as override_log
from app.promotion.repository import now
from app.promotion.requests import PromotionRequest
from app.promotion.service import PromotionService
from app.promotion.state_machine import OperationKind
from app.promotion.views import event_view
from app.proxy.admission import LITTLE_BYTES, Uploads
from app.proxy.deadlines import ClientGone
from app.registry import chain
from app.registry.errors import ChainBroken
from app.registry.registry import Registry
from app.registry.values import AuditEntry, Revocation, Thing
from gates.report.files import MAX_REPORT_BYTES

_SMALL = Uploads(LITTLE_BYTES)
MAX_EVENTS = 1000

Count = Annotated[int, Query(ge=0, le=10**15)]
FlaggerHook = Literal["confirm-rollout", "confirm-promotion", "rollback"]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=128)]


class AdminBody(BaseModel):
    """A request's body: strict, and without unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class RollbackBody(AdminBody):
    model: str


class PromoteBody(RollbackBody):
    engine: str | Annotated[list[str], Field(min_length=1, max_length=MAX_REPLICAS)]
    report: str | None = Field(default=None, max_length=100)


class FlaggerBody(BaseModel):  # the canary's name, namespace, phase and checksum decide nothing
    model: str = Field(validation_alias=AliasPath("metadata", "model"))
    engine: str = Field(validation_alias=AliasPath("metadata", "engine"))


class OverrideBody(AdminBody):
    model: str
    engine: str
    waives: list[override_log.Waivable] = Field(min_length=1)
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=500)]
    hours: float = Field(default=24.0, gt=0, le=24)


class RevokeBody(AdminBody):
    """`id` is a digest: an artefact's root, an engine's, a report's, a key's."""

    thing: Thing
    id: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    reason: str = Field(min_length=3, max_length=500)


def operators_router(
    promotions: PromotionService, reports: Reports, access: AccessService, reloader: Reloader
) -> APIRouter:
    """Routes of the operators' listener that make changes or show them."""
    routes = APIRouter()
    _add_requests(routes, promotions)
    _add_operations(routes, promotions, access)
    _add_reports(routes, reports)
    _add_overrides(routes, promotions, reloader)
    _add_audit(routes, promotions)

    @routes.post("/admin/reload")
    async def reload(request: Request) -> Response:
        return reply(request, await reloader.reload(actor(request)))

    return routes


def _add_requests(routes: APIRouter, promotions: PromotionService) -> None:
    @routes.post("/admin/promote", status_code=202)
    async def promote(request: Request, dry_run: bool = False, key: IdempotencyKey = None) -> Response:
        body = await read_body(request, PromoteBody)
        engine, *replicas = [body.engine] if isinstance(body.engine, str) else body.engine
        named = {"engine": engine, "replicas": tuple(replicas), "report": body.report}
        wanted = PromotionRequest(kind=OperationKind.PROMOTE, model=body.model, key=key, **named)
        return await _ask(request, promotions, wanted, dry_run)

    @routes.post("/admin/rollback", status_code=202)
    async def rollback(request: Request, dry_run: bool = False, key: IdempotencyKey = None) -> Response:
        body = await read_body(request, RollbackBody)
        wanted = PromotionRequest(kind=OperationKind.ROLLBACK, model=body.model, key=key)
        return await _ask(request, promotions, wanted, dry_run)

    @routes.post("/admin/flagger/{hook}")
    async def flagger(request: Request, hook: FlaggerHook) -> Response:
        asked = await read_body(request, FlaggerBody)
        ask = promotions.went_back if hook == "rollback" else promotions.eligible
        return reply(request, await ask(asked.model, promotions.catalogue.digest(asked.engine)))


async def _ask(
    request: Request, promotions: PromotionService, wanted: PromotionRequest, dry_run: bool
) -> Response:
    shown = await promotions.submit(wanted, actor(request), dry_run=dry_run)
    return reply(request, shown) if dry_run else _accepted(request, shown)


def _add_operations(routes: APIRouter, promotions: PromotionService, access: AccessService) -> None:
    @routes.get("/admin/operations")
    async def operations(request: Request, limit: Count = 50) -> Response:
        shown = await promotions.operations(min(limit, MAX_EVENTS))
        return reply(request, {"operations": shown})

    @routes.get("/admin/operations/{id}")
    async def operation(request: Request, id: str) -> Response:
        return reply(request, await promotions.operation(id))

    @routes.post("/admin/operations/{id}/cancel", status_code=202)
    async def cancel(request: Request, id: str) -> Response:
        return _accepted(request, await promotions.cancel(id, actor(request)))

    @routes.get("/admin/operations/{id}/events", response_class=Response)
    async def events(request: Request, id: str) -> Response:
        await promotions.operation(id)  # its 404 comes before the stream
        seen = request.headers.get("last-event-id", "0")
        after = int(seen) if seen.isdecimal() and len(seen) <= 15 else 0
        headers = {**reply_headers(request), "x-accel-buffering": "no"}
        told = _stream(promotions.follow(id, after), partial(access.check, request.headers["authorization"]))
        return StreamingResponse(told, media_type="text/event-stream", headers=headers)


async def _stream(
    events: AsyncIterator[tuple[str, int, dict[str, Any]]], check: Callable[[], object]
) -> AsyncIterator[bytes]:
    """The events of an operation, while `check` lets the operator see them."""
    try:
        async for kind, seq, value in events:
            check()
            if not kind:
                yield b": alive\n\n"
                continue
            yield f"id: {seq}\nevent: {kind}\ndata: {json.dumps(value)}\n\n".encode()
    except (StateUnavailable, Unauthorized) as error:  # the head is sent; the operator can resume
        yield f"event: error\ndata: {json.dumps(error.envelope())}\n\n".encode()


def _add_reports(routes: APIRouter, reports: Reports) -> None:
    uploads = Uploads(MAX_REPORT_BYTES)

    @routes.post("/admin/reports")
    async def upload(request: Request) -> Response:
        data, held = await _body(request, uploads)
        try:
            shown, new = await reports.keep(data, actor(request))
        finally:
            uploads.give_back(actor(request), held)
        return reply(request, shown, 201 if new else 200)

    @routes.get("/admin/reports")
    async def listed(request: Request) -> Response:
        rows = await reports.listed()
        return reply(request, {"reports": [asdict(row) for row in reversed(rows)]})

    @routes.get("/admin/reports/{digest}")
    async def report(request: Request, digest: str) -> Response:
        data = await reports.show(digest, bytes)
        return Response(data, headers=reply_headers(request), media_type="application/json")


def _add_overrides(routes: APIRouter, promotions: PromotionService, reloader: Reloader) -> None:
    catalogue = promotions.catalogue

    @routes.post("/admin/overrides", status_code=201)
    async def grant(request: Request) -> Response:
        asked, at = (await read_body(request, OverrideBody)).model_dump(), datetime.now(UTC)
        reloader.config.model(asked["model"])
        work = partial(override_log.grant, catalogue=catalogue, by=actor(request), asked=asked, now=at)
        return reply(request, await promotions.do(work), 201)

    @routes.get("/admin/overrides")
    async def overrides(request: Request) -> Response:
        held = await promotions.do(partial(override_log.active, now=datetime.now(UTC)))
        shown = [override_log.view(seq, one, catalogue) for seq, one in held.items()]
        return reply(request, {"overrides": shown})

    @routes.delete("/admin/overrides/{id}")
    async def withdraw(request: Request, id: int) -> Response:
        by, at = actor(request), datetime.now(UTC)
        work = partial(override_log.withdraw, catalogue=catalogue, by=by, seq=id, now=at)
        return reply(request, await promotions.do(work))


def _add_audit(routes: APIRouter, promotions: PromotionService) -> None:
    @routes.post("/admin/revoke", status_code=201)
    async def revoke(request: Request) -> Response:
        body = await read_body(request, RevokeBody)
        revocation = Revocation(thing=body.thing, id=body.id, reason=body.reason, at=now())
        verb, detail = f"{body.thing}.revoked", {"reason": body.reason}
        entry = AuditEntry(at=revocation.at, actor=actor(request), verb=verb, subject=body.id, detail=detail)
        await promotions.revoke(revocation, entry)
        return reply(request, asdict(revocation), 201)

    @routes.get("/admin/audit")
    async def audit(request: Request, after: Count = 0, limit: Count = 200, newest: bool = False) -> Response:
        state = await chain_state(promotions.do)
        page = partial(audit_page, after=after, limit=min(limit, MAX_EVENTS), newest=newest)
        return reply(request, {**await promotions.do(page), "chain": state})


async def chain_state(do: RegistryRunner) -> dict[str, Any]:
    """Whether the whole chain is sound; verified in parts, between which a promotion's step or a revocation is done."""
    before, head = None, chain.GENESIS
    try:
        while head != before:
            before, head = head, await do(partial(Registry.verify_chain, head=head, limit=MAX_EVENTS))
    except ChainBroken as broken:
        return {"ok": False, "seq": broken.seq, "why": broken.why}
    return {"ok": True}


def audit_page(registry: Registry, after: int, limit: int, newest: bool) -> dict[str, Any]:
    """At most `limit` events behind `after`, or the `newest` of them; and the head."""
    head = registry.head()
    start = max(after, head.seq - limit) if newest else after
    events = [event_view(event) for event in registry.events(after=start, limit=limit)]
    return {"events": events, "head": {"seq": head.seq, "hash": head.hash}}


def actor(request: Request) -> str:
    """The name of the operator who asks; the audit records it."""
    return str(request.state.caller)


async def read_body(request: Request, kind: type[Any]) -> Any:
    """The checked body. Raises BadJSON, BadField, BadHTTP."""
    data, _ = await _body(request, _SMALL)  # so small a body holds no room
    raw = json_object(data)
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise field_error(error, raw) from None


async def _body(request: Request, uploads: Uploads) -> tuple[bytes, int]:
    """The body, and the room that it holds. Raises BadHTTP, Busy."""
    promised = request.headers.get("content-length", "").encode()
    try:
        return await uploads.body(request.receive, promised, actor(request))
    except ClientGone:  # it is no bug
        raise BadHTTP("the request broke off", "request_timeout") from None


def _accepted(request: Request, operation: dict[str, Any]) -> Response:
    path = f"/admin/operations/{operation['id']}"
    return reply(request, operation, 202, location=path, **{"retry-after": "1"})
