"""The HTTP edge towards engines: one file, one pool, one table of foreign errors.

A client of our own on llhttp's parser (httptools), because of what a chunk costs: a streamed chunk
comes out of the socket's callback straight into a sink, with no task to wake. Measured beside it,
paced streams: aiohttp +7 us a chunk, httpx2 +45 us (docs/bench.md). It speaks only what engines
need: POST, HTTP/1.1, keep-alive.

Giving up on a reply is one call that cannot be interrupted: `close` aborts the connection, which
is how an engine learns that nobody listens. Only a reply that came to its end gives it back.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from app.errors import EngineBroke, EngineDown, MannersError

KEEP_ALIVE_SECONDS = 4.0
"""Idle connections are dropped before uvicorn-based engines close theirs (after 5 s)."""

MAX_HEAD_BYTES = 64 << 10
MAX_BODY_BYTES = 16 << 20
"""Of a reply that is not streamed."""

_TRANSLATION: tuple[tuple[type[Exception], type[MannersError], str], ...] = (
    (TimeoutError, EngineDown, "connect_timeout"),
    (ssl.SSLError, EngineDown, "connect_failed"),
    (OSError, EngineDown, "connect_failed"),
    (httptools.HttpParserError, EngineBroke, "upstream_malformed"),
)
"""Most specific first: TimeoutError and SSLError are OSErrors."""


def translate(error: Exception) -> MannersError:
    """Our error for a foreign one; an error that is not in the table is a bug and is raised."""
    for foreign, ours, code in _TRANSLATION:
        if isinstance(error, foreign):
            return ours(f"the engine could not be reached: {error or type(error).__name__}", code)
    raise error


class Sink(Protocol):
    """Takes the body of a reply, in the event loop's thread. Must not raise."""

    def data(self, data: bytes) -> None:
        """Some of the body."""

    def end(self, error: MannersError | None) -> None:
        """The body is over, or broke off. Called once."""


class EngineReply(asyncio.Protocol):
    """One connection, and the reply that it carries at the moment."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = True  # no reply is outstanding: the connection may be used
        self.lost = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._head: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._parts: list[bytes] = []  # of the body, not yet given to the sink
        self._error: MannersError | None = None
        self._ended = False
        self._head_bytes = 0

    # What the pool and the relay call.

    def send(self, request: bytes) -> asyncio.Future[None]:
        """Send a request; the future is done when the reply's head is here."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers, self.complete = 0, {}, False
        self._sink, self._parts, self._error, self._ended = None, [], None, False
        self._head_bytes = 0
        self._head = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._head

    def pour(self, sink: Sink) -> None:
        """Give the body to `sink`: what is here already at once, the rest as it arrives."""
        self._sink = sink
        self._deliver()

    def pause(self) -> None:
        """Read no more for now: the caller cannot keep up."""
        if self._transport and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Give up on whatever is outstanding. Never waits, may be called at any time."""
        self._sink = None
        if self._transport:
            self._transport.abort()

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self.headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent on this connection."""
        assert self._transport is not None
        return self.complete and not self.lost and not self._transport.is_closing()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        if self.complete:
            return self.close()  # bytes that nobody asked for
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(translate(error))
            return self.close()
        if self._parts or self._ended:
            self._deliver()
        elif not self.status:
            self._limit_head(len(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self.complete:
            return
        framed = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        if self.status and not framed and error is None:
            self.on_message_complete()  # a body that lasts until the connection closes
            return self._deliver()
        what = "in mid-reply" if self.status else "before it answered"
        code = "upstream_truncated" if self.status else "upstream_disconnected"
        self._fail(EngineBroke(f"the engine closed the connection {what}", code))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        self.status = status
        if self._head and not self._head.done():
            self._head.set_result(None)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self.status:  # not one of the 1xx kind
            self._ended = True
            self.complete = True
            if not self._parser.should_keep_alive() and self._transport:
                self._transport.close()

    # Inside.

    def _deliver(self) -> None:
        """Pass on everything that came with one read, in one piece."""
        sink = self._sink
        if sink is None:
            return
        if self._parts:
            parts, self._parts = self._parts, []
            sink.data(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._ended or self._error:
            self._sink = None
            sink.end(self._error)

    def _limit_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(EngineBroke("the head of the engine's reply is too large", "upstream_too_large"))
            self.close()

    def _fail(self, error: MannersError) -> None:
        self._error = error
        if self._head and not self._head.done():
            self._head.set_exception(error)
        else:
            self._deliver()


class Upstream:
    """A pool of connections to one engine. Close it when its route is gone."""

    def __init__(self, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._idle: deque[EngineReply] = deque()
        self._tls: ssl.SSLContext | None = None
        self.open = 0  # replies outstanding

    def close(self) -> None:
        """Close the idle connections; those in use end with their replies."""
        while self._idle:
            self._idle.pop().close()

    @asynccontextmanager
    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[EngineReply]:
        """POST a request; the block reads the reply, whose head has arrived.

        Raises:
            EngineDown: no connection. EngineBroke: it broke off before it answered.
        """
        request = _request(url, body, headers)
        self.open += 1
        reply: EngineReply | None = None
        try:
            while True:
                fresh = not self._idle
                reply = await self._connect(url) if fresh else self._idle.pop()
                if not reply.is_reusable:
                    continue
                try:
                    await reply.send(request)
                    break
                except EngineBroke:
                    if fresh or reply.status:
                        raise
                    # An idle connection was closed under us, before the engine answered: again.
            yield reply
        finally:
            self.open -= 1
            if reply is not None:
                self._give_back(reply)

    def _give_back(self, reply: EngineReply) -> None:
        if not reply.is_reusable:
            return reply.close()
        reply.idle_since = time.monotonic()
        self._idle.append(reply)
        asyncio.get_running_loop().call_later(KEEP_ALIVE_SECONDS, self._expire)

    def _expire(self) -> None:
        """Drop connections that have been idle too long; the oldest stands first."""
        limit = time.monotonic() - KEEP_ALIVE_SECONDS + 0.01
        while self._idle and self._idle[0].idle_since <= limit:
            self._idle.popleft().close()

    async def _connect(self, url: str) -> EngineReply:
        parts = urlsplit(url)
        if parts.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        tls = self._tls if parts.scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, reply = await loop.create_connection(EngineReply, host, port, ssl=tls)
        except OSError as error:
            raise translate(error) from error
        return reply


def _request(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}", f"content-length: {len(body)}"]
    lines += ["content-type: application/json", "accept: text/event-stream, application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value.isprintable()]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


class BodyReader:
    """A sink that keeps a whole body, up to `limit` bytes; `done` when it is over."""

    def __init__(self, limit: int = MAX_BODY_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._limit:
            self._parts.append(data)

    def end(self, error: MannersError | None) -> None:
        if self.done.done():
            return
        if error is None and self._size > self._limit:
            error = EngineBroke("the engine's reply is too large", "upstream_too_large")
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(b"".join(self._parts))
