"""A reply in the format of the request's API: streamed as it comes, or whole at the end.

A stream is written from callbacks, into uvicorn's transport: its `send` is a coroutine function, which costs 2.5 us a chunk
more. These are uvicorn's private parts: pyproject.toml bounds its version, and a test notices when they change.

Each writer takes what the stream core makes certain, in order:

    set_source(reply, anew)   write this engine's reply from now on (None: no reply), and pause it while the caller reads
                              slowly; anew: it starts from its beginning, and replaces the one before it
    texts(texts)              plain texts of choice 0, where something has gone out before
    events(events, is_last)   is_last: the reply is over with them
    deliver()                 wait until the caller has everything
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.api.items import Collector
from app.errors.translate import route_errors_to
from app.errors.tree import MannersError
from app.proxy.context import Headers, RequestContext
from app.stream.encode import EventEncoder
from app.upstream.batching import IOBatch
from app.upstream.connection import EngineReply
from gates.reply.events import Broken, Done, Event, Text, Usage

FINISH_SECONDS = 1.0
"""How long the end of a broken reply may wait for a caller who does not read."""
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class StreamWriter:
    """Writes to a caller who streams, for a whole request: its engines, and its choices, come one after the other.

    The status line waits until there is something to show, and goes out with it in one write: each wakes the peer. `cycle`
    is our server's of this request (`app.http.connection`).
    """

    _encoder: EventEncoder
    _reply: EngineReply | None = None
    _catching_up: asyncio.Task[None] | None = None  # waits until the caller has read what was written
    _end = b""  # of the reply, which waits for that

    def __init__(self, context: RequestContext, batch: IOBatch, cycle: Any) -> None:
        self._context, self._batch, self._cycle = context, batch, cycle

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
        if anew:
            self._encoder = self._context.surface.encoder(self._context.head)
        self._reply = reply
        if reply is not None and self._catching_up is not None:
            reply.pause()

    def texts(self, texts: Sequence[str]) -> None:
        self._write(self._encoder.texts(texts))

    def events(self, events: Sequence[Event], is_last: bool) -> bool:
        """See above. Returns whether anything went out."""
        body = self._encoder.feed(events)
        if not body and not is_last:
            return False
        self._write(body, is_last)
        return True

    async def deliver(self) -> None:
        if self._catching_up is not None:
            await self._catching_up

    async def fail(self, error: MannersError) -> None:
        """Send the error, after the part of the reply that the caller already has."""
        body = self._encoder.fault(error.message, error.code, error.type)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._cycle.send({"type": "http.response.body", "body": body, "more_body": False})

    def close(self) -> None:
        """Write nothing more."""
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
            self._context.deadlines.full()
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
        with route_errors_to(self._context.deadlines.fail):
            await self._cycle.flow.drain()
            self._catching_up = None
            self._context.deadlines.free()
            if self._reply is not None:
                self._reply.resume()
            if self._end and not self._cycle.disconnected:
                self._complete()


class ChoiceWriter:
    """Writes one choice of several into the stream, under its index; the request writes their common count and end."""

    def __init__(self, context: RequestContext, out: StreamWriter) -> None:
        self._context, self._out = context, out
        self.deliver = out.deliver  # the next choice is not read for a caller who is behind

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
        self._out.set_source(reply, anew and not self._context.begun)

    def texts(self, texts: Sequence[str]) -> None:
        self._out.events([Text(self._context.choice, text) for text in texts], False)

    def events(self, events: Sequence[Event], is_last: bool) -> None:
        shown: list[Any] = [event for event in events if not isinstance(event, Usage | Done)]
        is_broken = bool(shown) and type(shown[-1]) is Broken
        if is_broken:
            self._context.deadlines.replies = 1
            self._context.deadlines.over()
        choice = self._context.choice
        shown = [event if type(event) is Broken else replace(event, choice=choice) for event in shown]
        if shown and self._out.events(shown, is_broken):
            self._context.begun = True


class WholeWriter:
    """Writes to a caller who wants the whole reply. Without `cycle` it keeps one choice of several. It is never paused."""

    _collector: Collector

    def __init__(self, context: RequestContext, cycle: Any = None) -> None:
        self._context, self._cycle = context, cycle

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
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
        if self._cycle is not None:
            await self.send(self.message())

    async def send(self, body: bytes) -> None:
        """Send a reply in one piece of JSON. A caller who takes it for longer than an idle time counts as gone."""
        context, send = self._context, self._cycle.send
        headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(body)), *context.headers()]
        self._context.deadlines.full()
        try:
            context.begun = True
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            self._context.deadlines.free()


ReplyWriter = StreamWriter | ChoiceWriter | WholeWriter
