"""One engine asked for one reply: from the engine's socket through the stream core to the caller.

    EngineReply -> Exchange.data -> Pipeline (app.stream) -> clocks, audit -> ReplyWriter -> caller

A streamed chunk runs through one callback: parse, filter, count, encode, write. So does the head of a stream (`begins`):
the task that serves the request is woken once a reply, at its end. A read that may keep the stream core busy for long
(`Pipeline.is_large`) is processed in a thread, while the engine's connection waits. The status line waits until there
is something to show, or an error to tell: an engine that fails before its first visible token gives the caller a real
HTTP status. A thought that outgrows its limit is ended from here.

An error while the engine's bytes are read is the engine's (UpstreamError), an error while they are written to the
caller is ours; either ends this reply only.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal

from app.access.accounts import MOST
from app.api.embeddings import Embeddings
from app.api.engine_request import answer_policy
from app.api.surface import Counts
from app.api.thinking_budget import ThoughtWatch
from app.api.tool_choice import ToolChoiceEnforcer
from app.errors.translate import (
    as_internal_error,
    as_upstream_error,
    bug_behind,
    from_status,
    from_stream,
    in_stream,
)
from app.errors.tree import MannersError
from app.proxy.context import RequestContext
from app.proxy.deadlines import Deadlines
from app.proxy.reply_writer import ReplyWriter, WholeWriter
from app.proxy.threads import REPLIES, in_thread
from app.stream.holdback import FILTERED
from app.stream.logprobs import LogprobAligner
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import DELTA_SIZE, Pipeline
from app.upstream.connection import EngineReply
from gates.reply.events import Broken, Done, Event, Finish, Text, Usage

FINISH_SECONDS = 1.0
"""How long the end of a finished reply may take before its connection is given up instead."""
MAX_ERROR_BYTES = 64 << 10
MAX_JSON_FACTOR = 2
"""A whole reply in JSON may be so many times larger than what it says."""
ANSWER_PATH = "/v1/completions"
"""Where an engine goes on from the tokens of a prompt and a thought."""
CONTROL_PATH = "/v1/chat/completions/control"
"""The endpoint that makes llama-server end a thought."""

PART_BYTES = 64 << 10
"""Of a read that are taken at once: many short lines take ten times their size in memory."""
_STATED: Final = re.compile(rb'"predicted_n":(\d{1,9})')
"""llama-server's running count. In a text its quotation marks would be escaped."""


class Exchange:
    """Asks the context's engine and hands its reply on (`run`).

    It is the reply's `ResponseHandler` (`sent`, `begins`) and the consumer of its body (`data`, `end`).
    """

    # Made by `sent` for the first reply.
    _keeper: ToolChoiceEnforcer | None
    _aligner: LogprobAligner | None
    _takes_short_way: bool
    _pipeline: Pipeline
    # Made by `_answered`.
    _reply: EngineReply
    _over: asyncio.Future[None]  # done when the reply is complete; or holds its fault

    _timer: asyncio.TimerHandle | None = None  # of the thought's time limit
    _control: asyncio.Task[None] | None = None  # tells the engine to end its thought
    _again: Literal["answer", "hint"] | None = None  # why the engine is to be asked once more
    _calls: Sequence[str] = ()  # of a reply of which nothing was left, and how many stood in its text
    _dropped = 0
    _spent: Usage | None = None  # what that reply cost
    _continued: ThoughtMeter | None = None  # of the cut thought that this reply continues
    _bug: BaseException | None = None  # of ours, that the engine's fault was made of; for the log
    _last = b""  # read of the engine, of a metered request
    _beyond_ascii = 0  # bytes of characters behind each one's first
    _is_sent = _has_answered = False
    _large: asyncio.Task[None] | None = (
        None  # what may take long: nothing else may touch the pipeline meanwhile
    )

    def __init__(self, context: RequestContext, deadlines: Deadlines, writer: ReplyWriter) -> None:
        self._context = context
        self._deadlines = deadlines
        self._writer = writer
        self._clocks, self._audit, self._budget = context.clocks, context.audit, context.budget
        self._watch = None if context.limit is None else ThoughtWatch(context.limit)
        self._tokens = 0
        self._bytes = 0  # of the engine's stream

    async def run(self) -> None:
        """Ask the engine and hand its reply on.

        It is asked again behind a thought that had to be ended, and once with a hint if its reply held only calls that
        nobody asked for; deadlines and budgets are those of one reply.

        Raises the engine's fault while nothing has gone out; later the fault goes into the stream and the context's `broken`.
        """
        context = self._context
        context.overhead = time.perf_counter() - context.start - context.queued
        path, body = context.surface.engine_path, context.body
        self._deadlines.begin()
        try:
            while not await self._ask(path, body):
                if self._again == "answer":
                    path, body = ANSWER_PATH, context.answer_body(self._meter)
                else:
                    path, body = context.surface.engine_path, context.body
        finally:
            self._writer.set_source(None, anew=False)
            if self._has_answered:
                self._stop()
                self._note()

    async def _ask(self, path: str, body: bytes) -> bool:
        """One reply of the engine to its end, and the caller's with it. False: it is to be asked again."""
        context = self._context
        url, upstream = context.route.url + path, context.route.backend.upstream
        reply = await upstream.ask(url, body, context.trace.headers, self)
        try:
            if reply.status != 200:
                raise from_status(reply.status, await reply.body(MAX_ERROR_BYTES), path)
            if not reply.is_stream:  # although it was asked to
                self._answered(reply, asyncio.get_running_loop().create_future())
                message = await reply.body(MAX_JSON_FACTOR * self._budget.reply_bytes)
                is_large, now = self._pipeline.is_large(message), time.perf_counter()
                self._work(self._read_message(message), is_large, now, None)
                await self._over
            if self._again == "answer":
                return False
            if self._again is None:
                await self._writer.deliver()
                context.delivered(0 if context.usage else self._made())
            await _finish(reply)
            return self._again is None
        finally:
            upstream.give_back(reply)

    def sent(self, reply: EngineReply) -> None:
        """See `ResponseHandler`. Asked again, keep the old reply until the new one starts."""
        if self._is_sent:
            if not self._has_answered:  # on another connection: the engine closed the first
                self._writer.set_source(reply, anew=False)
            return
        context = self._context
        context.expect_reply()
        self._keeper = context.keeper
        self._aligner = LogprobAligner() if context.parsed.logprobs else None
        self._takes_short_way = self._keeper is None and self._aligner is None
        self._writer.set_source(reply, anew=True)
        self._pipeline = self._new_pipeline()
        self._is_sent = True

    def begins(self, reply: EngineReply, over: asyncio.Future[None]) -> bool:
        """See `ResponseHandler`. A stream is read from now on, until it is `over`."""
        if reply.status != 200 or not reply.is_stream:
            return False
        try:
            self._answered(reply, over)
            reply.set_body_consumer(self)
        except BaseException as error:
            self._fail(as_internal_error(error))
        return True

    def _answered(self, reply: EngineReply, over: asyncio.Future[None]) -> None:
        """The engine has answered 200, and not for the first time if it is asked again."""
        context = self._context
        self._reply, self._over = reply, over
        if not self._has_answered:
            self._has_answered = True
            self._set_timer()
            return
        before, again = self._pipeline, self._again
        self._aligner = self._aligner and LogprobAligner()
        self._again, self._tokens = None, 0
        if again == "answer":
            self._continued = self._meter
            self._pipeline = Pipeline(answer_policy(context.policy), aligner=self._aligner)
        else:
            self._watch = None if context.limit is None else ThoughtWatch(context.limit)
            self._continued = None
            self._pipeline = self._new_pipeline()
            self._set_timer()
        self._pipeline.size = before.size  # one budget for all that is said
        self._writer.set_source(reply, anew=again == "hint")

    def _new_pipeline(self) -> Pipeline:
        """A stream core for a reply from its beginning."""
        meter = None if self._watch is None else self._watch.meter
        return Pipeline(self._context.policy, meter, self._aligner)

    def _stop(self) -> None:
        """Ask nothing more."""
        if not self._over.cancel() and not self._over.cancelled():
            self._over.exception()  # marked as retrieved, also if this task was cancelled in the same moment
        for pending in (self._timer, self._control, self._large):
            if pending is not None:
                pending.cancel()

    def _note(self) -> None:
        """Keep the stream core's facts for accounting."""
        context = self._context
        made = [] if self._keeper is None else self._keeper.sources
        context.calls = [*self._calls, *self._pipeline.call_sources, *made]
        context.audit.dropped = self._dropped + self._pipeline.dropped
        context.made += self._made()

    def _made(self) -> int:
        """Tokens that the engine has made, at least: by its running count, else one for each byte."""
        pipeline = self._pipeline
        if not self._context.is_metered:
            return pipeline.tokens  # for the books only
        if self._deadlines.is_full:
            return MOST  # more may have been made than was read
        if stated := _STATED.findall(self._last):
            made = int(stated[-1])
        else:
            made = max(pipeline.size - DELTA_SIZE * pipeline.tokens + self._beyond_ascii, pipeline.tokens)
        first = Counts.of(self._spent)
        return first.given + first.made + made

    # The reply, as it comes.

    def data(self, data: bytes) -> None:
        """A read from the engine."""
        if self._over.done():
            return
        pipeline, watch, now = self._pipeline, self._watch, time.perf_counter()
        self._bytes += len(data)
        if self._context.is_metered:
            self._last = data
            if not data.isascii():
                self._beyond_ascii += len(data) - len(data.decode("utf-8", "replace"))
        try:
            texts = pipeline.passes(data) if watch is None and self._takes_short_way else None
        except BaseException as error:
            return self._fail(as_upstream_error(error))
        if texts is None:
            return self._work(self._read(data, watch), pipeline.is_large(data), now, watch)
        try:
            text = "".join(texts)
            self._deadlines.progress = now
            self._clocks.text(text, now)
            self._audit.text(text)
            self._writer.texts(texts)
        except BaseException as error:
            return self._fail(as_internal_error(error))
        if self._bytes > self._budget.stream_bytes or pipeline.size > self._budget.reply_bytes:
            self.end(self._budget.exceeded())

    def end(self, error: MannersError | None) -> None:
        """The engine's connection is done."""
        if not self._over.done():
            self._bug = bug_behind(error)
            self._work(self._close(error), self._pipeline.is_large(), time.perf_counter(), None)

    # Steps of the stream core's work; the events of each are shown before the next begins.

    def _read(self, data: bytes, watch: ThoughtWatch | None) -> Iterator[list[Event]]:
        """In parts; payload by payload while there is a limit to the thought."""
        for at in range(0, len(data), PART_BYTES):
            part = data[at : at + PART_BYTES]
            if watch is None:
                yield self._pipeline.feed(part)
            else:
                yield from self._pipeline.feed_each(part)

    def _close(self, error: MannersError | None) -> Iterator[list[Event]]:
        pipeline = self._pipeline
        yield pipeline.close() if error is None else pipeline.abort(error.message, error.code)

    def _read_message(self, message: bytes) -> Iterator[list[Event]]:
        """A reply that was not streamed."""
        events = self._pipeline.feed_message(message)
        if self._pipeline.size > self._budget.reply_bytes:
            raise self._budget.exceeded()
        yield events

    def _work(
        self, steps: Iterator[list[Event]], is_large: bool, now: float, watch: ThoughtWatch | None
    ) -> None:
        """Take these steps: what is large in a thread, while the engine's connection waits."""
        try:
            if is_large:
                self._reply.hold()
                self._large = asyncio.create_task(self._work_in_thread(steps, now, watch))
                return
            for events in steps:
                if not self._took(events, now, watch):
                    return
        except BaseException as error:
            return self._fail(as_upstream_error(error))
        self._check_size()

    async def _work_in_thread(
        self, steps: Iterator[list[Event]], now: float, watch: ThoughtWatch | None
    ) -> None:
        step, goes_on = partial(next, steps, None), True
        try:
            while goes_on and (events := await in_thread(REPLIES, step, as_upstream_error)) is not None:
                goes_on = self._took(events, now, watch)
            self._large = None
            if goes_on:
                if self._deadlines.progress:  # the engine was not silent: it had to wait
                    self._deadlines.progress += time.perf_counter() - now
                self._check_size()
                self._reply.set_body_consumer(self)
        except BaseException as error:  # of a request that is over, too: `_over` is done then
            self._fail(as_upstream_error(error))

    def _check_size(self) -> None:
        if self._bytes > self._budget.stream_bytes or self._pipeline.size > self._budget.reply_bytes:
            self.end(self._budget.exceeded())

    def _took(self, events: Sequence[Event], now: float, watch: ThoughtWatch | None) -> bool:
        """Take the events of a step; whether the reply goes on. If not, the next payload is not counted."""
        self._take(events, now)
        if watch is not None and self._watch is watch and not self._over.done():
            self._look(events, now, watch)
        return not self._over.done()

    def _take(self, events: Sequence[Event], now: float) -> None:
        """Note a batch of events and show it."""
        if self._over.done():
            return
        try:
            if self._pipeline.tokens != self._tokens:
                self._note_progress(self._pipeline.tokens, now)
            if events:
                self._show(events, now)
        except BaseException as error:
            self._fail(as_internal_error(error))

    def _note_progress(self, tokens: int, now: float) -> None:
        self._deadlines.progress = now
        if not self._tokens:
            self._clocks.token(now)
            self._context.route.backend.record_success(now - self._deadlines.begun)
        self._tokens = tokens

    def _show(self, events: Sequence[Event], now: float) -> None:
        context = self._context
        if self._spent is not None or self._continued is not None:
            events = [self._summed(event) if type(event) is Usage else event for event in events]
        if self._keeper is not None:
            events = self._keeper.feed(events)
            if not events:
                return
        self._clocks.feed(events, now)
        self._audit.feed(events)
        for event in events:
            if type(event) is Usage:
                context.usage = event
        last, is_last = events[-1], self._pipeline.over
        if type(last) is Broken:
            is_last, is_filtered = True, last.code == FILTERED and not last.by_engine
            if is_filtered and not context.begun and self._ask_with_hint():
                return
            if is_filtered and (sentence := context.when_nothing_is_left()):
                context.filtered = self._known(in_stream(last))
                self._aligner = None  # no engine made the tokens of this sentence
                events = [*events[:-1], Text(0, sentence), Finish(0, "stop"), Done()]
            elif not context.begun:
                return self._fail(self._known(from_stream(last)))
            else:
                broken = context.broken = self._known(in_stream(last))
                events = [*events[:-1], Broken(broken.message, broken.code)]
        if self._aligner is not None:
            events = self._aligner.align(events)
            if self._aligner.is_over and "logprobs" not in context.ignored:
                context.ignored = [*context.ignored, "logprobs"]
        if is_last:
            self._deadlines.over()
        self._writer.events(events, is_last)
        if self._clocks.first_content == now:
            context.overhead += time.perf_counter() - now
        if is_last and not self._over.done():
            self._over.set_result(None)

    def _summed(self, usage: Usage) -> Usage:
        """The usage of all replies to this request: a continued thought counts its prompt once, and our own cache hits do not count."""
        if self._continued is not None:
            given, thought = len(self._continued.prompt), len(self._continued.tokens)
            made = thought + usage.tokens("completion_tokens")
            counts = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
            usage = Usage({**counts, "completion_tokens_details": {"reasoning_tokens": thought}})
        return usage if self._spent is None else usage.after(self._spent)

    def _ask_with_hint(self) -> bool:
        """Whether the engine is asked once more, since its reply held only calls that nobody asked for."""
        pipeline, context = self._pipeline, self._context
        if not pipeline.call_sources or (body := context.hinted_body()) is None:
            return False
        self._again, context.body = "hint", body
        self._calls, self._dropped, self._spent = pipeline.call_sources, pipeline.dropped, context.usage
        context.usage = None  # until the engine has counted both
        self._over.set_result(None)
        return True

    def _fail(self, error: MannersError) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _known(self, error: MannersError) -> MannersError:
        """Set the original exception as cause."""
        error.__cause__ = self._bug
        return error

    # The thought's limit.

    @property
    def _meter(self) -> ThoughtMeter:
        """The prompt and tokens of the reply whose thought was ended."""
        assert self._pipeline.meter is not None
        return self._pipeline.meter

    def _set_timer(self) -> None:
        limit = self._context.limit
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None and limit is not None and limit.seconds is not None:
            due = self._clocks.start + limit.seconds - time.perf_counter()
            self._timer = asyncio.get_running_loop().call_later(max(due, 0.0), self._time_is_up, self._watch)

    def _time_is_up(self, watch: ThoughtWatch) -> None:
        try:
            watch.time_is_up()
            if self._watch is watch and self._large is None and not self._over.done():
                self._look((), time.perf_counter(), watch)
        except BaseException as error:
            self._fail(as_upstream_error(error))

    def _look(self, events: Sequence[Event], now: float, watch: ThoughtWatch) -> None:
        if watch.look(events, self._pipeline):
            self._watch, self._context.cut = None, watch.due
            if watch.limit.means == "control":
                self._control = asyncio.create_task(self._end_thought(watch.meter.reply_id))
            elif watch.limit.means == "restart":
                self._take(self._pipeline.cut(), now)
                self._again = "answer"
                self._over.set_result(None)
        elif watch.over:
            self._watch = None

    async def _end_thought(self, reply_id: str) -> None:
        """Tell the engine, and ignore its answer: the stream shows whether it obeyed."""
        body = b'{"id":"%b","action":"reasoning_end"}' % reply_id.encode("ascii", "ignore")
        route, headers = self._context.route, self._context.trace.headers
        with contextlib.suppress(MannersError):
            await route.backend.upstream.read(route.url + CONTROL_PATH, body, headers, MAX_ERROR_BYTES)


async def pass_through(
    context: RequestContext, surface: Embeddings, deadlines: Deadlines, writer: WholeWriter
) -> None:
    """Ask the engine for a reply without text, and hand it on whole; it is due within the first token's time.

    Raises what the engine did wrong.
    """
    route = context.route
    context.overhead = time.perf_counter() - context.start - context.queued
    deadlines.begin()
    status, _, raw = await route.backend.upstream.read(
        route.url + surface.engine_path, context.body, context.trace.headers
    )
    if status != 200:
        raise from_status(status, raw, surface.engine_path)
    body, context.usage = surface.hand_on(raw, context.head.model)
    if route.kind == "embeddings":  # of one that should stream, a vector proves nothing
        route.backend.record_success(0.0)
    deadlines.over()
    await writer.send(body)
    context.delivered(0)


async def _finish(reply: EngineReply) -> None:
    """Read the last bytes after `[DONE]`, so that the connection can be used again."""
    if not (reply.complete or reply.lost):
        with contextlib.suppress(MannersError, TimeoutError):  # the caller has everything
            async with asyncio.timeout(FINISH_SECONDS):
                await reply.body(MAX_ERROR_BYTES)
