"""Errors to HTTP, in one place."""

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.errors.envelopes import envelope_for
from app.errors.tree import BadField, KeyLimited, MannersError, UnknownRoute, WrongMethod
from app.telemetry.log import Logger, where


class _Raw(Response):
    """Pre-encoded JSON."""

    media_type = "application/json"


def error_response(error: MannersError, headers: list[tuple[bytes, bytes]] = [], path: str = "") -> Any:  # noqa: B006 (never written)
    """The envelope of the API at this path (OpenAI's, if in doubt) with the error's status."""
    response = _Raw(msgspec.json.encode(envelope_for(path, error)), error.status)
    response.raw_headers.extend(headers)
    response.raw_headers.append((b"cache-control", b"no-store"))
    if error.retry_after is not None:
        response.raw_headers.append((b"retry-after", str(error.retry_after).encode()))
    elif isinstance(error, KeyLimited):  # clients of OpenAI and Anthropic retry any other 429
        response.raw_headers.append((b"x-should-retry", b"false"))
    if isinstance(error, WrongMethod):
        response.raw_headers.append((b"allow", error.allow.encode()))
    if error.status == 401:
        response.raw_headers.append((b"www-authenticate", b"Bearer"))
    return response


def install(app: FastAPI, log: Logger) -> None:
    """Make every error of this application an envelope."""

    def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, MannersError)
        response: Response = error_response(error, _request_id(request), request.url.path)
        return response

    def starlettes(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return ours(request, _from_http(request, error))

    def anything(request: Request, error: Exception) -> Response:
        route = getattr(request.scope.get("route"), "path", None)  # the template: it holds no caller's text
        log.error("internal_error", path=route, **where(error))
        return ours(request, MannersError("something went wrong in the gateway; its log says what"))

    def frameworks(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        name = str(first["loc"][-1])
        return ours(request, BadField(f"{name}: {first['msg']}", param=name))

    app.add_exception_handler(MannersError, ours)
    app.add_exception_handler(RequestValidationError, frameworks)
    app.add_exception_handler(HTTPException, starlettes)
    app.add_exception_handler(Exception, anything)


def _from_http(request: Request, error: HTTPException) -> MannersError:
    path = request.url.path
    if error.status_code == 404:
        return UnknownRoute(f"there is nothing at {path[:200]}")
    if error.status_code == 405:
        first = (error.headers or {}).get("Allow", "")
        return WrongMethod(f"{request.method} is not for {path[:200]}", _allowed(request, first))
    wrong = BadField(str(error.detail), "invalid_request")
    wrong.status = error.status_code
    return wrong


def _allowed(request: Request, first: str) -> str:
    """The methods at this path by the OpenAPI document; the framework names those of the first route only."""
    route = getattr(request.scope.get("route"), "path", "")
    listed = request.app.openapi()["paths"].get(route, {})
    return ", ".join(sorted({method.upper() for method in listed} | set(filter(None, first.split(", ")))))


def _request_id(request: Request) -> list[tuple[bytes, bytes]]:
    known = getattr(request.state, "request_id", "")
    return [(b"x-request-id", known.encode()), (b"x-manners-engine", b"none")]
