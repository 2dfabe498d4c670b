"""Two gateways that do nothing: what our parts cost alone, and what the usual parts cost.

    python -m tests.bench.passthrough own|aiohttp PORT ENGINE_PORT

`own` is this project's way (FastAPI on uvicorn, a client on httptools' callbacks) without anything
else. `aiohttp` is what most people would write first: StreamingResponse over aiohttp. Neither knows
keys, limits, metrics, logs, cancellation or slow readers.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httptools
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class _Connection(asyncio.Protocol):
    """A connection to the engine; the body of a reply goes from its callback to `send`."""

    def __init__(self) -> None:
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, path: str, body: bytes, send: Send) -> asyncio.Future[None]:
        """Pass a request on; the future is done with the reply."""
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._over = False
        self._send = send
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        head = f"POST {path} HTTP/1.1\r\nhost: engine\r\ncontent-length: {len(body)}\r\n"
        self._transport.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        return self._done

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._parts or self._over:
            body, self._parts = b"".join(self._parts), []
            self._put({"type": "http.response.body", "body": body, "more_body": not self._over})
        if self._over:
            self._done.set_result(None)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._put({"type": "http.response.start", "status": status, "headers": _HEADERS})

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._over = True

    def _put(self, message: dict[str, Any]) -> None:
        """Step `send` by hand: it ends at once while the client reads, and this one always does."""
        coroutine: Any = self._send(message)
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise RuntimeError("the client does not read")


class _Own(Response):
    def __init__(self, engine: str, idle: list[_Connection], request: bytes) -> None:
        self._engine, self._idle, self._request = engine, idle, request
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._idle:
            connection = self._idle.pop()
        else:
            loop, port = asyncio.get_running_loop(), int(self._engine)
            _, connection = await loop.create_connection(_Connection, "127.0.0.1", port)
        await connection.ask(scope["path"], self._request, scope["bench.send"])
        self._idle.append(connection)


def own(engine: str) -> ASGIApp:
    """A client on callbacks, straight to the server's own `send`."""
    app = FastAPI()
    idle: list[_Connection] = []

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return _Own(engine, idle, await request.body())

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["bench.send"] = send
        await app(scope, receive, send)

    return outer


def usual(engine: str) -> ASGIApp:
    """StreamingResponse over aiohttp."""
    url = f"http://127.0.0.1:{engine}/v1/chat/completions"
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
        make(engine),
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
