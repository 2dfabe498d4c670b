"""Two gateways that do nothing: what our parts cost alone, and what the usual parts cost.

    python -m tests.bench.passthrough own|aiohttp PORT ENGINE_PORT

`own` is FastAPI on uvicorn with this project's HTTP client and outlet, and no stream core.
`aiohttp` is what most people would write first: StreamingResponse over aiohttp.
Neither knows keys, limits, metrics or logs.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import MannersError
from app.http1 import EngineReply
from app.outlet import Outlet
from app.upstream import Upstream

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class _Relay:
    """Body bytes in, the same bytes out."""

    def __init__(self, send: Send, reply: EngineReply) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outlet = Outlet(send, reply.pause, reply.resume)
        self._outlet.put({"type": "http.response.start", "status": reply.status, "headers": _HEADERS})

    def data(self, data: bytes) -> None:
        self._outlet.put({"type": "http.response.body", "body": data, "more_body": True})

    def end(self, error: MannersError | None) -> None:
        if error:
            self.over.set_exception(error)
        else:
            self._outlet.put({"type": "http.response.body", "body": b"", "more_body": False})
            self.over.set_result(None)

    async def flushed(self) -> None:
        await self.over
        await self._outlet.flushed()


class _Own(Response):
    def __init__(self, upstream: Upstream, url: str, request: bytes) -> None:
        self._upstream, self._url, self._request = upstream, url, request
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._upstream.ask(self._url, self._request, {}) as reply:
            relay = _Relay(scope["bench.send"], reply)
            reply.pour(relay)
            await relay.flushed()


def own(url: str) -> ASGIApp:
    """Our client, straight to the server's own `send`."""
    app, upstream = FastAPI(), Upstream(1.0)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return _Own(upstream, url, await request.body())

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["bench.send"] = send
        await app(scope, receive, send)

    return outer


def usual(url: str) -> ASGIApp:
    """StreamingResponse over aiohttp."""
    app = FastAPI()
    sessions: list[aiohttp.ClientSession] = []

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        if not sessions:
            connector = aiohttp.TCPConnector(limit=0)
            sessions.append(aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout()))
        headers = {"content-type": "application/json"}
        reply = await sessions[0].post(url, data=await request.body(), headers=headers)

        async def body() -> AsyncIterator[bytes]:
            try:
                async for data in reply.content.iter_any():
                    yield data
            finally:
                reply.release()

        return StreamingResponse(body(), reply.status, media_type="text/event-stream")

    return app


def main(kind: str, port: str, engine: str) -> None:
    """Serve until SIGTERM, with uvicorn's settings of `manners serve` where they cost anything."""
    make: Any = {"own": own, "aiohttp": usual}[kind]
    uvicorn.run(
        make(f"http://127.0.0.1:{engine}/v1/chat/completions"),
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main(*sys.argv[1:4])
