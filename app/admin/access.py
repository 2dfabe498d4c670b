"""The operators' API over HTTP: callers' keys and operators."""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field, create_model
from starlette.responses import Response

from app.access import records, roles
from app.access.service import AccessService
from app.admin.routes import AdminBody, actor, read_body
from app.http.replies import reply
from app.registry.values import KeyLimits

Count = Annotated[int, Field(ge=1, le=10**15)]


_LIMITS: Any = {field.name: (Count | None, None) for field in fields(KeyLimits)}
LimitsBody = create_model("LimitsBody", __base__=AdminBody, **_LIMITS)
"""`PATCH /admin/keys/NAME`: null takes a limit away."""
KeyBody = create_model("KeyBody", __base__=LimitsBody, name=(str, ...))
"""`POST /admin/keys`."""


class RotateBody(AdminBody):
    """`POST /admin/keys/NAME/rotate`: for how many seconds the old secret still works."""

    overlap_seconds: int = Field(default=86_400, ge=0, le=90 * 86_400)


class OperatorBody(AdminBody):
    """`POST /admin/operators`."""

    name: str
    role: str


def access_router(access: AccessService) -> APIRouter:
    """Routes to list and change callers' keys and operators."""
    routes = APIRouter()

    async def changed(
        request: Request, kind: records.Kind, name: str, work: Any, status: int = 200, **given: Any
    ) -> Response:
        change = partial(work, name=name, actor=actor(request), **given)
        return reply(request, await access.change(kind, name, change), status)

    @routes.post("/admin/keys", status_code=201)
    async def add_key(request: Request) -> Response:
        asked = (await read_body(request, KeyBody)).model_dump()
        name = asked.pop("name")
        return await changed(request, "key", name, records.add_key, 201, limits=KeyLimits(**asked))

    @routes.patch("/admin/keys/{name}")
    async def limit_key(request: Request, name: str) -> Response:
        changes = (await read_body(request, LimitsBody)).model_dump(exclude_unset=True)
        return await changed(request, "key", name, records.limit_key, changes=changes)

    @routes.post("/admin/keys/{name}/rotate")
    async def rotate_key(request: Request, name: str) -> Response:
        overlap = (await read_body(request, RotateBody)).overlap_seconds
        return await changed(request, "key", name, records.rotate_key, overlap=overlap)

    @routes.post("/admin/operators", status_code=201)
    async def add_operator(request: Request) -> Response:
        body = await read_body(request, OperatorBody)
        return await changed(request, "operator", body.name, records.add_operator, 201, role=body.role)

    def add_kind(kind: records.Kind) -> None:
        @routes.get(f"/admin/{kind}s")
        async def listed(request: Request) -> Response:
            return reply(request, {f"{kind}s": access.listed(kind)})

        @routes.delete(f"/admin/{kind}s/{{name}}")
        async def revoke(request: Request, name: str) -> Response:
            return await changed(request, kind, name, partial(records.revoke, kind=kind))

    add_kind("key")
    add_kind("operator")
    return routes


def role_guard(access: AccessService) -> Callable[[Request], Awaitable[None]]:
    """A FastAPI dependency of every admin route: the operator's role allows it, by `app.access.roles`."""

    async def check(request: Request) -> None:
        path = request.scope["route"].path
        if path not in roles.OPEN_ROUTES:
            roles.check(access.role(actor(request)), request.method, path)

    return check
