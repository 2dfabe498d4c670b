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
from app.errors.tree import Forbidden
from app.http.replies import reply
from app.registry.values import KeyLimits

Count = Annotated[int, Field(ge=1, le=10**15)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


_LIMITS: Any = {field.name: (Count | None, None) for field in fields(KeyLimits)}
LimitsBody = create_model("LimitsBody", __base__=AdminBody, **_LIMITS)
"""Null takes a limit away."""
KeyBody = create_model("KeyBody", __base__=LimitsBody, name=(Name, ...))


class RotateBody(AdminBody):
    overlap_seconds: int = Field(default=86_400, ge=0, le=90 * 86_400)
    """How long the old secret still works."""


class OperatorBody(AdminBody):
    name: Name
    role: Annotated[str, Field(pattern=f"^({'|'.join(roles.ROLE_NAMES)})$")]


def access_router(access: AccessService) -> APIRouter:
    """Routes to list and change callers' keys and operators."""
    routes = APIRouter()

    @routes.post("/admin/keys", status_code=201)
    async def add_key(request: Request) -> Response:
        limits = (await read_body(request, KeyBody)).model_dump(exclude_none=True)
        name = limits.pop("name")
        work = partial(records.add, detail={"limits": limits}, limits=KeyLimits(**limits))
        return reply(request, await access.change("key", name, actor(request), work), 201)

    @routes.post("/admin/operators", status_code=201)
    async def add_operator(request: Request) -> Response:
        body = await read_body(request, OperatorBody)
        work = partial(records.add, detail={"role": body.role}, role=body.role)
        return reply(request, await access.change("operator", body.name, actor(request), work), 201)

    @routes.patch("/admin/keys/{name}")
    async def limit(request: Request, name: str) -> Response:
        changes = (await read_body(request, LimitsBody)).model_dump(exclude_unset=True)
        work = partial(records.limit, changes=changes)
        return reply(request, await access.change("key", name, actor(request), work))

    @routes.post("/admin/keys/{name}/rotate")
    async def rotate(request: Request, name: str) -> Response:
        work = partial(records.rotate, overlap=(await read_body(request, RotateBody)).overlap_seconds)
        return reply(request, await access.change("key", name, actor(request), work))

    def add_kind(kind: records.Kind) -> None:
        @routes.get(f"/admin/{kind}s")
        async def listed(request: Request) -> Response:
            return reply(request, {f"{kind}s": access.listed(kind)})

        @routes.delete(f"/admin/{kind}s/{{name}}")
        async def revoke(request: Request, name: str) -> Response:
            return reply(request, await access.change(kind, name, actor(request), records.revoke))

    add_kind("key")
    add_kind("operator")
    return routes


def role_guard(access: AccessService) -> Callable[[Request], Awaitable[None]]:
    """A FastAPI dependency of every admin route: the operator's role allows it, by `app.access.roles`."""

    async def check(request: Request) -> None:
        path = request.scope["route"].path
        if path in roles.OPEN_ROUTES:
            return
        role, needed = access.role(actor(request)), roles.role_for(request.method, path)
        if role < needed:
            why = f"this needs an operator with the role {needed}, and yours is {role}: ask one who may"
            raise Forbidden(why, f"role_{needed}_required")

    return check
