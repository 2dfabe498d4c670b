"""The OpenAPI documents: FastAPI's routes, the API surfaces that do not go through it, and operators' bodies."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api.embeddings import Embeddings
from app.api.surface import Surface

_JSON = {"application/json": {"schema": {"type": "object"}}}
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"description": "An error in the envelope", "content": dict(_JSON)}
}
"""Error responses that every operation has."""


def document(app: FastAPI, surfaces: Sequence[Surface], models: Sequence[str]) -> None:
    """Make `app.openapi()` list the surfaces' routes, too, with their requests' schemas and these names as examples."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            for surface in surfaces:
                found["paths"][surface.path] = {"post": _operation(surface, schemas, models)}
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it


def serve(app: FastAPI, path: str) -> None:
    """Answer at `path` with `app.openapi()`, rendered once: FastAPI's own route takes milliseconds each time."""
    rendered = cache(lambda: JSONResponse(app.openapi()).body)

    async def document(request: Request) -> Response:
        return Response(rendered(), media_type="application/json")

    app.add_route(path, document, include_in_schema=False)


def takes(body: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI part of a route that reads its body itself."""
    content = {"application/json": {"schema": body.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def sends(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI part of a route whose reply is not JSON."""
    return {200: {"content": {media_type: {} for media_type in media_types}}}


def _operation(surface: Surface, schemas: dict[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """One route, with its API's name before the names of its models: two APIs have a `Tool`."""
    name = type(surface).__name__
    schema = surface.request.model_json_schema(ref_template=f"#/components/schemas/{name}.{{model}}")
    schemas |= {f"{name}.{part}": made for part, made in schema.pop("$defs", {}).items()}
    schemas[name] = schema
    schemas[name]["properties"]["model"]["examples"] = list(models)
    content = dict(_JSON)
    if not isinstance(surface, Embeddings):
        content["text/event-stream"] = {}
    body = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {
        "summary": name,
        "operationId": name,
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {
            "200": {"description": "The reply", "content": content},
            "default": {"description": "An error in this API's envelope", "content": dict(_JSON)},
        },
    }
