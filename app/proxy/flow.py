"""The way of one reply: from the engine's socket through the stream core to the caller.

A streamed chunk runs through one callback: parse, filter, count, encode, write. Tasks are woken
once a reply, at its end. A thought that outgrows its limit is ended from here.

Whatever raises on the way ends this reply and no other. What raises while the engine's bytes are read
is the engine's fault (UpstreamError), what raises while they are written to the caller is ours.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from app.api.engine_request import answer_policy
from app.api.thinking_budget import ThoughtLimit, ThoughtWatch
from app.engines.pool import Route
from app.errors.translate import bug_behind, from_stream, in_stream, unreadable, unwritten
from app.errors.tree import MannersError
from app.proxy.deadlines import Lifeline
from app.proxy.exchange import JSON_HEADERS, MAX_ERROR_BYTES, STREAM_HEADERS, Exchange
from app.proxy.outlet import Outlet, Send
from app.stream.events import Broken, Event, Usage
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import Pipeline, Spent
from app.upstream.connection import BodyReader, EngineReply

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
        self._witness = exchange.audit
        self._line = line
        self._route = route
        self._tokens = 0
        self._bytes = 0  # of the engine's stream
        self._budget = exchange.budget
        self._bug: BaseException | None = None  # of ours, that the engine's fault was made of; for the log
        self._open(send)

    @abstractmethod
    def _open(self, send: Send) -> None:
        """Make ready to write to the caller."""

    def data(self, data: bytes) -> None:
        """A read from the engine."""
        if self.over.done():
            return
        now = time.perf_counter()
        self._bytes += len(data)
        try:
            watch = self._watch
            texts = self.pipeline.passes(data) if watch is None else None
            if watch is not None:
                self._feed_watched(data, now, watch)
            elif texts is None:
                self.take(self.pipeline.feed(data), now)
        except BaseException as error:
            return self._give_up(unreadable(error), error)
        if texts is not None:
            try:
                text = texts[0] if len(texts) == 1 else "".join(texts)
                self._line.progress = now
                self._clocks.text(text, now)
                self._witness.text(text)
                self.show_texts(texts)
            except BaseException as error:
                return self._give_up(unwritten(error), error)
        if self._bytes > self._budget.stream_bytes or self.pipeline.size > self._budget.reply_bytes:
            self.end(self._budget.exceeded())

    def end(self, error: MannersError | None) -> None:
        """The engine's connection is done."""
        if self.over.done():
            return
        now = time.perf_counter()
        self._bug = bug_behind(error)
        try:
            events = (
                self.pipeline.close() if error is None else self.pipeline.abort(error.message, error.code)
            )
        except BaseException as bug:
            return self._give_up(unreadable(bug), bug)
        self.take(events, now)

    def whole(self, body: bytes) -> None:
        """A reply that was not streamed."""
        try:
            events = self.pipeline.feed_message(body)
            if self.pipeline.size > self._budget.reply_bytes:
                raise self._budget.exceeded()
        except BaseException as error:
            return self._give_up(unreadable(error), error)
        self.take(events, time.perf_counter())

    def take(self, events: Sequence[Event], now: float) -> None:
        """Note a batch of events and show it."""
        if self.over.done():
            return
        try:
            self._take(events, now)
        except BaseException as error:
            self._give_up(unwritten(error), error)

    def _feed_watched(self, data: bytes, now: float, watch: ThoughtWatch) -> None:
        """A read, while there is a limit to the thought."""
        for events in self.pipeline.feed_each(data):
            self.take(events, now)
            if self._watch is watch and not self.over.done():
                self._look(events, now, watch)
            if self.over.done():  # before the next payload is counted: it is no longer ours
                return

    def _take(self, events: Sequence[Event], now: float) -> None:
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
        if type(last) is Broken:
            if not self._exchange.begun:
                return self._fail(self._known(from_stream(last)))
            broken = self._exchange.broken = self._known(in_stream(last))
            events = [*events[:-1], Broken(broken.message, broken.code)]
        if self.pipeline.over:
            self._line.over()
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
        try:
            watch.time_is_up()
            if self._watch is watch and not self.over.done():
                self._look((), time.perf_counter(), watch)
        except BaseException as error:
            self._give_up(unreadable(error), error)

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

    def _fail(self, error: MannersError) -> None:
        if not self.over.done():
            self.over.set_exception(error)

    def _give_up(self, error: MannersError, cause: BaseException) -> None:
        """Something raised. Only what ends the whole process goes further than this reply."""
        self._fail(error)
        if isinstance(cause, KeyboardInterrupt | SystemExit):
            raise cause

    def _known(self, error: MannersError) -> MannersError:
        """The same, with the bug behind it."""
        error.__cause__ = self._bug
        return error

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
        if self.over.done() and not self.over.cancelled():
            self.over.exception()  # looked at: whoever was cancelled in the same moment did not
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
            self._outlet = Outlet(send, self._reply.round, self._pause, self._resume, self._line.fail)
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
        if self._pulse is not None:
            self._pulse.open()
        else:
            headers = STREAM_HEADERS + self._exchange.headers
            self._outlet.put({"type": "http.response.start", "status": 200, "headers": headers})
        self._exchange.begun = True

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
        body = self._collector.message()
        length = (b"content-length", str(len(body)).encode())
        headers = [*JSON_HEADERS, length, *self._exchange.headers]
        with self._line.waiting():
            self._exchange.begun = True
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
