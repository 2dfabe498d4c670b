"""The operators' API over HTTP: callers' keys, operators, and the reload."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from app.access import roles
from app.access.records import NAME
from app.access.service import AccessService
from app.admin.reload import Reloader
from app.admin.routes import AdminBody, actor, read_body
from app.http.openapi import takes
from app.http.replies import reply
from app.registry.values import KeyLimits

Name = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})]
Count = Annotated[int, Field(ge=1, le=10**15)]


class LimitsBody(AdminBody):
    """`PATCH /admin/keys/NAME`: limits as in `app.registry.values.KeyLimits`; null takes one away."""

    rpm: Count | None = None
    tpm: Count | None = None
    concurrency: Count | None = None
    daily_budget: Count | None = None
    budget: Count | None = None


class KeyBody(LimitsBody):
    """`POST /admin/keys`."""

    name: Name


class RotateBody(AdminBody):
    """`POST /admin/keys/NAME/rotate`: for how many seconds the old secret still works."""

    overlap_seconds: int = Field(default=86_400, ge=0, le=90 * 86_400)


class OperatorBody(AdminBody):
    """`POST /admin/operators`."""

    name: Name
    role: Annotated[str, WithJsonSchema({"enum": [*roles.ROLE_NAMES]})]


def access_router(access: AccessService, reloader: Reloader) -> APIRouter:
    """Routes to list and change callers' keys and operators."""
    routes = APIRouter()

    @routes.get("/admin/keys", response_model=None)
    async def keys(request: Request) -> Response:
        return reply(request, {"keys": access.keys()})

    @routes.post("/admin/keys", response_model=None, status_code=201, openapi_extra=takes(KeyBody))
    async def add_key(request: Request) -> Response:
        asked = (await read_body(request, KeyBody)).model_dump()
        name = asked.pop("name")
        return reply(request, await access.add_key(name, KeyLimits(**asked), actor(request)), 201)

    @routes.patch("/admin/keys/{name}", response_model=None, openapi_extra=takes(LimitsBody))
    async def limit_key(request: Request, name: str) -> Response:
        changes = (await read_body(request, LimitsBody)).model_dump(exclude_unset=True)
        return reply(request, await access.limit_key(name, changes, actor(request)))

    @routes.post("/admin/keys/{name}/rotate", response_model=None, openapi_extra=takes(RotateBody))
    async def rotate_key(request: Request, name: str) -> Response:
        body = await read_body(request, RotateBody)
        return reply(request, await access.rotate_key(name, body.overlap_seconds, actor(request)))

    @routes.delete("/admin/keys/{name}", response_model=None)
    async def revoke_key(request: Request, name: str) -> Response:
        return reply(request, await access.revoke_key(name, actor(request)))

    @routes.get("/admin/operators", response_model=None)
    async def operators(request: Request) -> Response:
        return reply(request, {"operators": access.operators()})

    @routes.post("/admin/operators", response_model=None, status_code=201, openapi_extra=takes(OperatorBody))
    async def add_operator(request: Request) -> Response:
        body = await read_body(request, OperatorBody)
        return reply(request, await access.add_operator(body.name, body.role, actor(request)), 201)

    @routes.delete("/admin/operators/{name}", response_model=None)
    async def revoke_operator(request: Request, name: str) -> Response:
        return reply(request, await access.revoke_operator(name, actor(request)))

    @routes.post("/admin/reload", response_model=None)
    async def reload(request: Request) -> Response:
        return reply(request, await reloader.reload(actor(request)))

    return routes


class RoleGuard:
    """A FastAPI dependency of every admin route: the operator's role allows it, by `app.access.roles.ROUTES`."""

    def __init__(self, access: AccessService) -> None:
        self._access = access

    async def __call__(self, request: Request) -> None:
        """Raises RoleRequired."""
        path = request.scope["route"].path
        if path not in roles.OPEN_ROUTES:
            roles.check(self._access.role(actor(request)), request.method, path)
