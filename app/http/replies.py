"""Replies of the routes that are not proxy: JSON, and the headers that every reply has."""

from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response


def reply_headers(request: Request) -> dict[str, str]:
    named = {"x-request-id": request.state.request_id, "x-manners-engine": "none"}
    return {**named, "cache-control": "no-store"}


def reply(request: Request, body: Any, status: int = 200, **more: str) -> Response:
    """JSON; `more` are headers."""
    return JSONResponse(body, status, {**reply_headers(request), **more})
