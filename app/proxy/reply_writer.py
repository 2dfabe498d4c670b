"""A reply in the format of the request's API: streamed as it comes, or whole at the end.

A stream is written from callbacks, into uvicorn's transport: its `send` is a coroutine function, which costs 2.5 us a chunk
more. These are uvicorn's private parts: pyproject.toml bounds its version, and a test notices when they change.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.errors.translate import route_errors_to
from app.errors.tree import MannersError
from app.proxy.context import Headers, RequestContext
from app.upstream.connection import EngineReply
from gates.reply.events import Broken, Done, Event, Usage

MAX_PENDING_BYTES = 64 << 10  # may wait for the end of the iteration, in which an engine may send megabytes
FINISH_SECONDS = 1.0  # how long the end of a broken reply may wait for a caller who does not read
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class ReplyWriter:
    """Writes to a request's caller what the stream core makes certain, in order: its engines, and its choices, come one
    after the other.

    The status line waits until there is something to show, and goes out with it in one write: each wakes the peer. `cycle`
    is our server's of this request (`app.http.connection`).
    """

    _encoder: Any  # or collector, of the request's API
    encode: Callable[[Sequence[str]], bytes | None]  # plain texts of choice 0, once the reply has begun
    _reply: EngineReply | None = None
    _catching_up: asyncio.Task[None] | None = None  # waits until the caller has read what was written
    _end = b""  # of the reply, which waits for that
    _pending = b""  # to be written before this iteration of the loop ends
    choice: int | None = None  # of several, which one is written; their common count and end come behind all

    def __init__(self, context: RequestContext, cycle: Any) -> None:
        self._context, self._cycle = context, cycle

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
        """Write this engine's reply from now on (None: no reply), and pause it while the caller of a stream reads slowly.

        anew: this reply starts from its beginning, and replaces the reply of the previous engine.
        """
        context = self._context
        if anew and not context.begun:
            make = context.surface.encoder if context.stream else context.surface.collector
            self._encoder = make(context.head)
            self.encode = self._encoder.texts
        self._reply = reply
        if reply is not None and self._catching_up is not None:
            reply.pause()

    def events(self, events: Sequence[Event], is_last: bool) -> None:
        """A batch of events. `is_last`: the reply is over with them."""
        is_streamed = self._context.stream
        if is_streamed and self.choice is not None:
            events, is_last = self._of_choice(events, self.choice)
        body = self._encoder.feed(events)
        if is_streamed and (body or is_last):
            self.write(body, is_last)

    def _of_choice(self, events: Sequence[Event], choice: int) -> tuple[list[Event], bool]:
        """The events under the choice's index, and whether they end the reply by a fault."""
        shown: list[Any] = [event for event in events if not isinstance(event, Usage | Done)]
        is_broken = bool(shown) and type(shown[-1]) is Broken
        if is_broken:
            self._context.deadlines.over()
        return [e if type(e) is Broken else replace(e, choice=choice) for e in shown], is_broken

    def message(self) -> bytes:
        """The reply as JSON, for a caller who does not stream."""
        message: bytes = self._encoder.message()
        return message

    async def deliver(self, message: bytes = b"") -> None:
        """Send a reply in one piece of JSON, if there is one; wait until the caller has everything."""
        if message:
            self.write(message, True)
        if self._catching_up is not None:
            await self._catching_up

    async def fail(self, error: MannersError) -> None:
        """Send the error, after the part of a stream that the caller already has."""
        if not self._context.stream:
            return
        body = self._encoder.fault(error.message, error.code, error.type)
        self._flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._cycle.send({"type": "http.response.body", "body": body, "more_body": False})

    def close(self) -> None:
        """Write nothing more."""
        if self._catching_up is not None:
            self._catching_up.cancel()

    def write(self, body: bytes, is_last: bool = False) -> None:
        """Write a part of a stream, or a whole message."""
        cycle, context = self._cycle, self._context
        if cycle.disconnected:
            return
        data = b"%x\r\n%b\r\n" % (len(body), body) if body and context.stream else body
        if is_first := not context.begun:
            data = self._head(len(body)) + data
            context.begun = True
        if cycle.flow.write_paused and self._catching_up is None:
            context.deadlines.full()
            if self._reply is not None:
                self._reply.pause()
            self._catching_up = context.deadlines.loop.create_task(self._catch_up())
        if is_last:
            self._end = self._pending + data + (b"0\r\n\r\n" if context.stream else b"")
            self._pending = b""
            if self._catching_up is None:
                self._complete()
        else:
            self._pending += data
            if is_first or len(self._pending) > MAX_PENDING_BYTES:
                self._flush()
            elif len(self._pending) == len(data):  # nothing waited before it
                context.deadlines.loop.call_soon(self._flush)

    def _flush(self) -> None:
        # Engines make a token for every stream in one step. To write when all that came in this iteration of the loop is
        # processed saves 2 us a chunk, because caches stay warm: uvloop makes each write a system call at once.
        data, self._pending = self._pending, b""
        try:
            if data and not self._cycle.transport.is_closing():
                self._cycle.transport.write(data)
        except Exception as error:  # a part of the reply is lost
            self._context.deadlines.fail(error)

    def _head(self, size: int) -> bytes:
        """The head of a 200, as uvicorn writes it, for a stream or a message of this size; marks it as sent."""
        cycle, is_streamed = self._cycle, self._context.stream
        cycle.response_started, cycle.chunked_encoding = True, is_streamed
        own = STREAM_HEADERS if is_streamed else [*JSON_HEADERS, (b"content-length", b"%d" % size)]
        headers = [*cycle.default_headers, *own, *self._context.headers()]
        if not cycle.keep_alive:
            headers.append((b"connection", b"close"))
        if is_streamed:
            headers.append((b"transfer-encoding", b"chunked"))
        return STATUS_LINE[200] + b"".join([b"%b: %b\r\n" % header for header in headers]) + b"\r\n"

    def _complete(self) -> None:
        """The last bytes, and what uvicorn does after them."""
        cycle = self._cycle
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
                self._reply.pause(False)
            if self._end and not self._cycle.disconnected:
                self._complete()
