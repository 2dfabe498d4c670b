"""HTTP/1.1 towards an engine: one connection, one reply at a time, on llhttp's parser (httptools).

A client of our own because of what a chunk costs: a streamed chunk comes out of the socket's
callback straight into a sink, with no task to wake. Measured beside it, paced streams: aiohttp
+7 us a chunk, httpx2 +45 us (docs/bench.md). It speaks only what engines need.

Giving up on a reply is one call that cannot be interrupted: `close` aborts the connection, which
is how an engine learns that nobody listens.
"""

import asyncio
import ssl
from typing import Protocol, cast

import httptools

from app.errors import EngineBroke, EngineDown, MannersError
from app.rounds import Round

MAX_HEAD_BYTES = 64 << 10
DISCONNECTED = "upstream_disconnected"
"""Code of the one fault after which asking again is safe: not a byte of an answer had come."""
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

    def __init__(self, round_: Round) -> None:
        self.round = round_
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
        self.round.read(self._received, data)

    def _received(self, data: bytes) -> None:
        if self.complete:
            return self.close()  # bytes that nobody asked for
        if not self.status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._ended:
                self._deliver()  # the reply is whole; what follows it is nobody's
            else:
                self._fail(translate(error))
            return self.close()
        if self._parts or self._ended:
            self._deliver()
        elif not self.status and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(EngineBroke("the head of the engine's reply is too large", "upstream_too_large"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.round.work()  # what was read before the end comes before it
        self.lost = True
        if self.complete:
            return
        framed = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        if self.status and not framed and error is None:
            self.on_message_complete()  # a body that lasts until the connection closes
            return self._deliver()
        what = "in mid-reply" if self._head_bytes else "before it answered"
        code = "upstream_truncated" if self._head_bytes else DISCONNECTED
        self._fail(EngineBroke(f"the engine closed the connection {what}", code))

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._ended:
            raise ValueError("a second reply to one request")

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

    def _fail(self, error: MannersError) -> None:
        if self._error is not None:
            return  # the first fault is the one that counts
        self._error = error
        if self._head and not self._head.done():
            self._head.set_exception(error)
        else:
            self._deliver()


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
