"""One exchange: a caller's request to an engine, and the engine's reply through the stream core.

The status line waits until there is something to show, or an error to tell: an engine that fails
before its first visible token gives the caller a real HTTP status, not a 200 with an apology.

A streamed chunk runs through one callback, from the engine's socket to the caller's: parse, filter,
count, encode, write. Tasks are woken once a reply, at its end.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.errors import EngineBroke, MannersError
from app.faults import from_status, from_stream
from app.fleet import Route
from app.http1 import BodyReader, EngineReply
from app.lifeline import Lifeline
from app.outlet import Outlet, Send
from app.stream.clocks import Clocks
from app.stream.encode import ReplyHead, error_frame
from app.stream.events import Broken, Event, Usage
from app.stream.pipeline import Pipeline, StreamPolicy
from app.surfaces.surface import Asked, Encoder, Surface
from app.witness import Witness

FINISH_SECONDS = 1.0
"""How long the end of a finished reply may take before its connection is given up instead."""
MAX_ERROR_BYTES = 64 << 10

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


@dataclass
class Exchange:
    """What one request needs, and what became of it. Times are `time.perf_counter` seconds."""

    surface: Surface
    asked: Asked
    head: ReplyHead
    stream: bool
    policy: StreamPolicy
    body: bytes
    headers: list[tuple[bytes, bytes]]  # of ours, for the reply
    clocks: Clocks
    witness: Witness
    queued: float = 0.0  # seconds spent waiting for a place
    usage: Usage | None = None
    calls: list[str] = field(default_factory=list)
    overhead: float = 0.0
    begun: bool = False  # the status line has gone out
    ended: float | None = None  # when the reply's last byte went out
    broken: MannersError | None = None  # told to the caller after the first byte
    encoder: Encoder | None = None  # of the stream that goes out

    async def run(self, route: Route, line: Lifeline, send: Send, trace: Mapping[str, str]) -> None:
        """Ask the engine and hand its reply on.

        Raises what the engine did wrong while nothing has gone out; afterwards the fault is told
        in the stream and kept in `broken`.
        """
        self.overhead = time.perf_counter() - self.clocks.start - self.queued
        url = route.url + self.surface.engine_path
        async with line.attempt(), route.upstream.ask(url, self.body, trace) as reply:
            if reply.status != 200:
                raise await status_error(reply, self.surface.engine_path)
            flow = (_Streaming if self.stream else _Collecting)(self, route, line, reply, send)
            try:
                if reply.is_stream:
                    reply.pour(flow)
                else:
                    await self._read_whole(reply, flow)
                await flow.over
                await flow.deliver(send)
                self.ended = time.perf_counter()
                await _finish(reply)
            finally:
                flow.abandon()
                self.calls = flow.pipeline.call_sources

    async def _read_whole(self, reply: EngineReply, flow: "_Flow") -> None:
        """The engine did not stream although it was asked to: its JSON goes the same way."""
        body = BodyReader()
        reply.pour(body)
        flow.take(flow.pipeline.feed_message(await body.done), time.perf_counter())

    async def tell(self, error: MannersError, send: Send) -> None:
        """A fault after the first byte: one error frame, then the end, and no [DONE]."""
        self.broken = error
        fault = error_frame if self.encoder is None else self.encoder.fault
        out = fault(error.message, error.code, error.type)
        with contextlib.suppress(TimeoutError):  # a caller who does not read is not waited for
            async with asyncio.timeout(FINISH_SECONDS):
                await send({"type": "http.response.body", "body": out, "more_body": False})


class _Flow(ABC):
    """The sink of one reply. `over` is done when the reply is complete, or raises its fault."""

    def __init__(
        self, exchange: Exchange, route: Route, line: Lifeline, reply: EngineReply, send: Send
    ) -> None:
        self.pipeline = Pipeline(exchange.policy)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exchange = exchange
        self._clocks = exchange.clocks
        self._witness = exchange.witness
        self._line = line
        self._route = route
        self._tokens = 0

    def data(self, data: bytes) -> None:
        """A read from the engine."""
        if self.over.done():
            return
        now = time.perf_counter()
        try:
            texts = self.pipeline.passes(data)
            if texts is None:
                self.take(self.pipeline.feed(data), now)
                return
            text = texts[0] if len(texts) == 1 else "".join(texts)
            self._line.progress = now
            self._clocks.text(text, now)
            self._witness.text(text)
            self.show_texts(texts)
        except Exception as error:  # a bug of ours must end the request, not the event loop
            self._fail(error)

    def end(self, error: MannersError | None) -> None:
        """The engine's connection is done."""
        if self.over.done():
            return
        now = time.perf_counter()
        if error is not None:
            self.take(self.pipeline.abort(error.message, error.code), now)
        else:
            self.take(self.pipeline.close(), now)

    def take(self, events: Sequence[Event], now: float) -> None:
        """Note a batch of events and show it."""
        if self.over.done():
            return
        if self.pipeline.tokens != self._tokens:
            self._line.progress = now
            if not self._tokens:
                self._clocks.hold(now)
                self._route.vouch()
            self._tokens = self.pipeline.tokens
        if not events:
            return
        self._clocks.feed(events, now)
        self._witness.feed(events)
        for event in events:
            if type(event) is Usage:
                self._exchange.usage = event
        last = events[-1]
        if type(last) is Broken and not self._exchange.begun:
            self._fail(from_stream(last))
            return
        if self.pipeline.over:
            self._line.over()
            if type(last) is Broken:
                self._exchange.broken = EngineBroke(last.message, last.code)
        self.show(events)
        if self._clocks.first_content == now:
            self._exchange.overhead += time.perf_counter() - now
        if self.pipeline.over and not self.over.done():
            self.over.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self.over.done():
            self.over.set_exception(error)

    @abstractmethod
    def show_texts(self, texts: Sequence[str]) -> None:
        """Plain texts of choice 0."""

    @abstractmethod
    def show(self, events: Sequence[Event]) -> None:
        """Events that became certain."""

    @abstractmethod
    async def deliver(self, send: Send) -> None:
        """Wait until the caller has everything."""

    def abandon(self) -> None:  # noqa: B027 (a whole reply has nothing to abandon)
        """Write nothing more."""


class _Streaming(_Flow):
    """To a caller who streams."""

    def __init__(
        self, exchange: Exchange, route: Route, line: Lifeline, reply: EngineReply, send: Send
    ) -> None:
        super().__init__(exchange, route, line, reply, send)
        self._encoder = exchange.surface.encoder(exchange.head, exchange.asked)
        exchange.encoder = self._encoder
        self._reply = reply
        self._outlet = Outlet(send, reply.round, self._pause, self._resume)

    def _pause(self) -> None:
        self._reply.pause()
        self._line.full()

    def _resume(self) -> None:
        self._reply.resume()
        self._line.free()

    def show_texts(self, texts: Sequence[str]) -> None:
        self._outlet.write(self._encoder.texts(texts))

    def show(self, events: Sequence[Event]) -> None:
        out = self._encoder.feed(events)
        more = not self.pipeline.over
        if not out and more:
            return
        if not self._exchange.begun:
            self._exchange.begun = True
            headers = _STREAM_HEADERS + self._exchange.headers
            self._outlet.put({"type": "http.response.start", "status": 200, "headers": headers})
        self._outlet.put({"type": "http.response.body", "body": out, "more_body": more})

    async def deliver(self, send: Send) -> None:
        await self._outlet.flushed()

    def abandon(self) -> None:
        self._outlet.abandon()


class _Collecting(_Flow):
    """To a caller who wants the whole reply."""

    def __init__(
        self, exchange: Exchange, route: Route, line: Lifeline, reply: EngineReply, send: Send
    ) -> None:
        super().__init__(exchange, route, line, reply, send)
        self._collector = exchange.surface.collector(exchange.head, exchange.asked)

    def show_texts(self, texts: Sequence[str]) -> None:
        self._collector.texts(texts)

    def show(self, events: Sequence[Event]) -> None:
        self._collector.feed(events)

    async def deliver(self, send: Send) -> None:
        self._exchange.begun = True
        body = self._collector.message()
        length = (b"content-length", str(len(body)).encode())
        headers = [*JSON_HEADERS, length, *self._exchange.headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _finish(reply: EngineReply) -> None:
    """Read the last bytes behind `[DONE]`, so that the connection can be used again."""
    if not reply.complete and not reply.lost:
        rest = BodyReader(0)
        reply.pour(rest)
        await asyncio.wait([rest.done], timeout=FINISH_SECONDS)
        if rest.done.done():
            rest.done.exception()  # looked at: whatever it was, the caller has everything


async def status_error(reply: EngineReply, path: str) -> MannersError:
    """What an engine's error status means to the caller."""
    body = BodyReader(MAX_ERROR_BYTES)
    reply.pour(body)
    return from_status(reply.status, await body.done, path)
