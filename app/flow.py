"""The way of one reply: from the engine's socket through the stream core to the caller.

A streamed chunk runs through one callback: parse, filter, count, encode, write. Tasks are woken
once a reply, at its end. A thought that outgrows its limit is ended from here.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from app.errors import EngineBroke, MannersError
from app.exchange import JSON_HEADERS, MAX_ERROR_BYTES, STREAM_HEADERS, Exchange
from app.faults import from_stream
from app.fleet import Route
from app.http1 import BodyReader, EngineReply
from app.lifeline import Lifeline
from app.outlet import Outlet, Send
from app.shaping import answer_policy
from app.stream.events import Broken, Event, Usage
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import Pipeline, Spent
from app.thought import ThoughtLimit, ThoughtWatch

CONTROL_PATH = "/v1/chat/completions/control"


class Flow(ABC):
    """The sink of one reply. `over` is done when the reply is complete, or raises its fault."""

    def __init__(
        self,
        exchange: Exchange,
        route: Route,
        line: Lifeline,
        reply: EngineReply,
        send: Send,
        trace: Mapping[str, str],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.begins_again = False  # the reply was given up; the engine is to be asked for the answer
        self._exchange = exchange
        self._reply = reply
        self._trace = trace
        self._watch = None if exchange.limit is None else ThoughtWatch(exchange.limit)
        self.pipeline = Pipeline(exchange.policy, None if self._watch is None else self._watch.meter)
        self._timer = self._set_timer(exchange.limit)
        self._control: asyncio.Task[None] | None = None
        self._clocks = exchange.clocks
        self._witness = exchange.witness
        self._line = line
        self._route = route
        self._tokens = 0
        self._open(send)

    @abstractmethod
    def _open(self, send: Send) -> None:
        """Make ready to write to the caller."""

    def data(self, data: bytes) -> None:
        """A read from the engine."""
        if self.over.done():
            return
        now = time.perf_counter()
        try:
            if self._watch is not None:
                self._take_watched(data, now, self._watch)
                return
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

    # The thought's limit.

    @property
    def meter(self) -> ThoughtMeter:
        """What the reply that was given up had told of itself."""
        assert self.pipeline.meter is not None
        return self.pipeline.meter

    def _set_timer(self, limit: ThoughtLimit | None) -> asyncio.TimerHandle | None:
        if self._watch is None or limit is None or limit.seconds is None:
            return None
        due = self._exchange.clocks.start + limit.seconds - time.perf_counter()
        return self._loop.call_later(max(due, 0.0), self._time_is_up, self._watch)

    def _time_is_up(self, watch: ThoughtWatch) -> None:
        watch.time_is_up()
        if self._watch is watch and not self.over.done():
            self._look((), time.perf_counter(), watch)

    def _take_watched(self, data: bytes, now: float, watch: ThoughtWatch) -> None:
        for events in self.pipeline.feed_each(data):
            self.take(events, now)
            if self._watch is watch and not self.over.done():
                self._look(events, now, watch)
            if self.over.done():  # before the next payload is counted: it is no longer ours
                return

    def _look(self, events: Sequence[Event], now: float, watch: ThoughtWatch) -> None:
        if watch.look(events, self.pipeline):
            self._watch, self._exchange.cut = None, watch.due
            if watch.limit.means == "control":
                self._control = self._loop.create_task(self._end_thought(watch.meter.reply_id))
            elif watch.limit.means == "restart":
                self.take(self.pipeline.cut(), now)
                self.begins_again = True
                self.over.set_result(None)
        elif watch.over:
            self._watch = None

    async def _end_thought(self, reply_id: str) -> None:
        """Tell the engine. What it answers changes nothing: the stream shows whether it obeyed."""
        body = b'{"id":"%b","action":"reasoning_end"}' % reply_id.encode("ascii", "ignore")
        with contextlib.suppress(MannersError):
            async with self._route.upstream.ask(self._route.url + CONTROL_PATH, body, self._trace) as reply:
                said = BodyReader(MAX_ERROR_BYTES)
                reply.pour(said)
                await said.done

    def begin_again(self, reply: EngineReply) -> None:
        """The engine answers at last, in a reply of its own that goes on with ours."""
        spent = Spent(len(self.meter.prompt), len(self.meter.tokens))
        self.pipeline = Pipeline(answer_policy(self._exchange.policy), spent=spent)
        self.over, self.begins_again = self._loop.create_future(), False
        self._reply, self._tokens = reply, 0

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

    def abandon(self) -> None:
        """Write nothing more, and ask nothing more."""
        for pending in (self._timer, self._control):
            if pending is not None:
                pending.cancel()


class Streaming(Flow):
    """To a caller who streams."""

    def _open(self, send: Send) -> None:
        exchange = self._exchange
        self._encoder = exchange.surface.encoder(exchange.head, exchange.asked)
        exchange.encoder = self._encoder
        self._pulse = exchange.pulse
        if self._pulse is None:
            self._outlet = Outlet(send, self._reply.round, self._pause, self._resume)
        else:
            self._outlet = self._pulse.lend(self._pause, self._resume)

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
            self._begin()
        if self._pulse is not None:
            self._pulse.wrote(more)
        self._outlet.put({"type": "http.response.body", "body": out, "more_body": more})

    def _begin(self) -> None:
        """The status line, unless a sign of life went before."""
        self._exchange.begun = True
        if self._pulse is not None:
            return self._pulse.open()
        headers = STREAM_HEADERS + self._exchange.headers
        self._outlet.put({"type": "http.response.start", "status": 200, "headers": headers})

    async def deliver(self, send: Send) -> None:
        await self._outlet.flushed()

    def abandon(self) -> None:
        super().abandon()
        if self._pulse is None:
            self._outlet.abandon()
        else:
            self._pulse.take_back()


class Collecting(Flow):
    """To a caller who wants the whole reply."""

    def _open(self, send: Send) -> None:
        self._collector = self._exchange.surface.collector(self._exchange.head, self._exchange.asked)

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
