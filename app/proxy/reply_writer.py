"""A reply in the format of the request's API: streamed as it comes, or whole at the end.

A stream is written from callbacks, into uvicorn's transport: its `send` is a coroutine function, which costs 2.5 us a chunk
more. These are uvicorn's private parts: pyproject.toml bounds its version, and a test notices when they change.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.api.surface import Collector
from app.errors.translate import route_errors_to
from app.errors.tree import MannersError
from app.proxy.context import Headers, RequestContext
from app.proxy.deadlines import Deadlines
from app.stream.encode import EventEncoder
from app.upstream.batching import IOBatch
from app.upstream.connection import EngineReply
from gates.reply.events import Event

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FINISH_SECONDS = 1.0
"""How long the end of a broken reply may wait for a caller who does not read."""
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class ReplyWriter:
    """Takes what the stream core makes certain, in order."""

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
        """Write this engine's reply from now on (None: no reply), and pause it while the caller reads slowly.

        anew: the reply starts from its beginning, and replaces the one before it.
        """
        raise NotImplementedError

    def texts(self, texts: Sequence[str]) -> None:
        """Plain texts of choice 0, where something has gone out before."""
        raise NotImplementedError

    def events(self, events: Sequence[Event], is_last: bool) -> object:
        """A batch of events. `is_last`: the reply is over with them."""
        raise NotImplementedError

    async def deliver(self) -> None:
        """Wait until the caller has everything."""
        raise NotImplementedError

    async def fail(self, error: MannersError, send: Send) -> None:
        """Send the error to the caller, after the part of the reply that the caller already has."""

    def close(self) -> None:
        """Write nothing more."""


class StreamWriter(ReplyWriter):
    """Writes to a caller who streams, for a whole request: its engines, and its choices, come one after the other.

    The status line waits until there is something to show, and goes out with it in one write: each wakes the peer. `send`
    is our server's (`app.http.connection`).
    """

    _encoder: EventEncoder
    _reply: EngineReply | None = None
    _catching_up: asyncio.Task[None] | None = None  # waits until the caller has read what was written
    _end = b""  # of the reply, which waits for that

    def __init__(self, context: RequestContext, deadlines: Deadlines, batch: IOBatch, send: Send) -> None:
        self._context = context
        self._deadlines = deadlines
        self._batch = batch
        self._cycle: Any = send.__self__  # type: ignore[attr-defined]

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
        if anew:
            self._encoder = self._context.surface.encoder(self._context.head)
        self._reply = reply
        if reply is not None and self._catching_up is not None:
            reply.pause()

    def texts(self, texts: Sequence[str]) -> None:
        self._write(self._encoder.texts(texts))

    def events(self, events: Sequence[Event], is_last: bool) -> bool:
        """See `ReplyWriter`. Returns whether anything went out."""
        body = self._encoder.feed(events)
        if not body and not is_last:
            return False
        self._write(body, is_last)
        return True

    async def deliver(self) -> None:
        if self._catching_up is not None:
            await self._catching_up

    async def fail(self, error: MannersError, send: Send) -> None:
        body = self._encoder.fault(error.message, error.code, error.type)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await send({"type": "http.response.body", "body": body, "more_body": False})

    def close(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()

    def _write(self, body: bytes, is_last: bool = False) -> None:
        cycle = self._cycle
        if cycle.disconnected:
            return
        data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        if not self._context.begun:
            data = self._head() + data
            self._context.begun = True
        if cycle.flow.write_paused and self._catching_up is None:
            self._deadlines.full()
            if self._reply is not None:
                self._reply.pause()
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())
        if not is_last:
            return self._batch.write(cycle.transport, data)
        self._end = data + b"0\r\n\r\n"
        if self._catching_up is None:
            self._complete()

    def _head(self) -> bytes:
        """The head of a chunked 200, as uvicorn writes it; marks it as sent."""
        cycle = self._cycle
        headers = (*cycle.default_headers, *STREAM_HEADERS, *self._context.headers())
        cycle.response_started = cycle.chunked_encoding = True
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        close = b"" if cycle.keep_alive else b"connection: close\r\n"
        return b"%b%b%btransfer-encoding: chunked\r\n\r\n" % (STATUS_LINE[200], lines, close)

    def _complete(self) -> None:
        """The last bytes, and what uvicorn does after them."""
        cycle = self._cycle
        self._batch.flush()
        cycle.transport.write(self._end)
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    async def _catch_up(self) -> None:
        with route_errors_to(self._deadlines.fail):
            await self._cycle.flow.drain()
            self._catching_up = None
            self._deadlines.free()
            if self._reply is not None:
                self._reply.resume()
            if self._end and not self._cycle.disconnected:
                self._complete()


class WholeWriter(ReplyWriter):
    """Writes to a caller who wants the whole reply. Without `send` it keeps one choice of several."""

    _collector: Collector

    def __init__(self, context: RequestContext, deadlines: Deadlines, send: Send | None) -> None:
        self._context = context
        self._deadlines = deadlines
        self._send = send

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
        """See `ReplyWriter`. It is never paused."""
        if anew:
            self._collector = self._context.surface.collector(self._context.head)

    def texts(self, texts: Sequence[str]) -> None:
        self._collector.texts(texts)

    def events(self, events: Sequence[Event], is_last: bool) -> None:
        self._collector.feed(events)

    def message(self) -> bytes:
        """The reply as JSON."""
        return self._collector.message()

    async def deliver(self) -> None:
        if self._send is not None:
            await self.send(self.message())

    async def send(self, body: bytes) -> None:
        """Send a reply in one piece of JSON. A caller who takes it for longer than an idle time counts as gone."""
        context, send = self._context, self._send
        assert send is not None
        headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(body)), *context.headers()]
        self._deadlines.full()
        try:
            context.begun = True
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            self._deadlines.free()
