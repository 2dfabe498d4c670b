"""Errors to HTTP, in one place."""

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.errors.tree import INTERNAL, BadField, BadHTTP, KeyLimited, MannersError, UnknownThing, envelope_for
from app.telemetry.log import Logger, where


def error_response(error: MannersError, headers: Sequence[tuple[bytes, bytes]] = (), path: str = "") -> Any:
    """The envelope of the API at this path (OpenAI's, if in doubt) with the error's status."""
    body = msgspec.json.encode(envelope_for(path, error))
    response = Response(body, error.status, media_type="application/json")
    found = [*headers, (b"cache-control", b"no-store")]
    if error.retry_after is not None:
        found.append((b"retry-after", str(error.retry_after).encode()))
    elif isinstance(error, KeyLimited):  # clients of OpenAI and Anthropic retry any other 429
        found.append((b"x-should-retry", b"false"))
    if isinstance(error, BadHTTP) and error.allow:
        found.append((b"allow", error.allow.encode()))
    if error.status == 401:
        found.append((b"www-authenticate", b"Bearer"))
    response.raw_headers.extend(found)
    return response


def install(app: FastAPI, log: Logger) -> None:
    """Make every error of this application an envelope."""

    def ours(request: Request, error: Exception) -> Any:
        if isinstance(error, MannersError):
            told = error
        elif isinstance(error, RequestValidationError):
            first = error.errors()[0]
            name = str(first["loc"][-1])
            told = BadField(f"{name}: {first['msg']}", param=name)
        elif isinstance(error, HTTPException):
            told = _from_http(request, error)
        else:
            log.error("internal_error", path=_route(request), **where(error))
            told = MannersError(INTERNAL)
        known = getattr(request.state, "request_id", "")
        headers = [(b"x-request-id", known.encode()), (b"x-manners-engine", b"none")]
        return error_response(told, headers, request.url.path)

    for kind in (MannersError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, ours)


def _route(request: Request) -> str | None:
    """The template of the path: it holds no caller's text."""
    return getattr(request.scope.get("route"), "path", None)


def _from_http(request: Request, error: HTTPException) -> MannersError:
    path = request.url.path
    if error.status_code == 404:
        return UnknownThing(f"there is nothing at {path[:200]}")
    if error.status_code == 405:
        routes = iter_route_contexts(request.app.routes)  # the framework names the methods of the first only
        allow = {method for one in routes if one.path == _route(request) for method in one.methods or ()}
        message = f"{request.method} is not for {path[:200]}"
        return BadHTTP(message, "method_not_allowed", allow=", ".join(sorted(allow)))
    return BadField(str(error.detail), "invalid_request", status=error.status_code)
