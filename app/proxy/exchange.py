"""One engine asked for one reply: from the engine's socket through the stream core to the caller.

    EngineReply -> Exchange.data -> Pipeline (app.stream) -> clocks, audit -> ReplyWriter -> caller

A streamed chunk runs through one callback: parse, filter, count, encode, write. So does the head of a stream (`begins`):
the task that serves the request is woken once a reply, at its end. The status line waits until there is something to
show, or an error to tell: an engine that fails before its first visible token gives the caller a real HTTP status. A
thought that outgrows its limit is ended from here.

An error while the engine's bytes are read is the engine's (UpstreamError), an error while they are written to the
caller is ours; either ends this reply only.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from app.access.accounts import MOST
from app.api.embeddings import Embeddings
from app.api.engine_request import answer_body, answer_policy
from app.api.surface import joined_message
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
from app.errors.tree import EngineBroke, MannersError
from app.proxy.context import RequestContext
from app.proxy.reply_writer import ReplyWriter
from app.stream.holdback import FILTERED
from app.stream.logprobs import LogprobAligner
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import DELTA_SIZE, Pipeline
from app.upstream.connection import EngineReply
from gates.reply.events import Broken, Done, Event, Finish, Text, Usage

FINISH_SECONDS = 1.0
"""How long the end of a finished reply may take before its connection is given up instead."""
MAX_ERROR_BYTES = 64 << 10
MAX_JSON_FACTOR = 2  # a whole reply in JSON may be so many times larger than what it says
ANSWER_PATH = "/v1/completions"  # where an engine goes on from the tokens of a prompt and a thought

_STATED: Final = re.compile(rb'"predicted_n":(\d{1,9})')
"""llama-server's running count. In a text its quotation marks would be escaped."""


class Exchange:
    """Asks the context's engine and hands its reply on (`run`).

    It is the reply's `ResponseHandler` (`sent`, `begins`) and the consumer of its body (`data`, `end`).
    """

    # Made by `sent`.
    _keeper: ToolChoiceEnforcer | None
    _aligner: LogprobAligner | None
    _takes_short_way: bool
    _pipeline: Pipeline
    # Made by `_answered`.
    _over: asyncio.Future[None]  # done when the reply is complete; or holds its fault

    _cut: ThoughtMeter | None = None  # of the thought that was ended, and that the next reply continues
    _bug: BaseException | None = None  # our exception behind the engine's fault; for the log
    _last = b""  # the latest read, if the request is metered
    _beyond_ascii = 0  # bytes in excess of characters
    _is_sent = _has_answered = False
    _tokens = 0
    _bytes = 0  # of the engine's stream

    def __init__(self, context: RequestContext, writer: ReplyWriter) -> None:
        self._context, self._deadlines, self._writer = context, context.deadlines, writer
        self._clocks, self._audit, self._limits = context.clocks, context.audit, context.limits
        self._watch = None if context.limit is None else ThoughtWatch(context.limit)

    async def run(self) -> None:
        """Ask the engine and hand its reply on. A second request continues behind a thought that had to be ended.

        Raises the engine's fault while nothing has gone out; later the fault goes into the stream and the context's `broken`.
        """
        context = self._context
        context.overhead = time.perf_counter() - context.start - context.queued
        self._deadlines.begin()
        try:
            await self._ask(context.surface.engine_path, context.body)
            if self._cut is not None:
                chat, body = context.parsed.chat, context.parsed.body
                await self._ask(ANSWER_PATH, answer_body(chat, body, context.asked, self._cut))
        finally:
            self._writer.set_source(None, anew=False)
            if self._has_answered:
                self._stop()

    async def _ask(self, path: str, body: bytes) -> None:
        """Read one reply of the engine to its end. The caller's ends with it, unless its thought was ended."""
        context, cut = self._context, self._cut
        url, upstream = context.route.url + path, context.route.backend.upstream
        reply = await upstream.ask(url, body, context.engine_headers, self)
        try:
            if reply.status != 200:
                raise from_status(reply.status, await reply.body(MAX_ERROR_BYTES), path)
            if not reply.is_stream:  # although it was asked to
                self._answered(reply, asyncio.get_running_loop().create_future())
                message = await reply.body(MAX_JSON_FACTOR * self._limits.max_reply_bytes)
                self._read(partial(self._pipeline.feed_message, message))
            await self._over
            if self._cut is not cut:
                return
            is_whole = not context.stream and self._writer.choice is None
            await self._writer.deliver(self._writer.message() if is_whole else b"")
            context.delivered(0 if context.usage else self._made())
            if not (reply.complete or reply.lost):  # read what follows [DONE], to use the connection again
                with contextlib.suppress(MannersError, TimeoutError):  # the caller has everything
                    async with asyncio.timeout(FINISH_SECONDS):
                        await reply.body(MAX_ERROR_BYTES)
        finally:
            upstream.give_back(reply)

    def sent(self, reply: EngineReply) -> None:
        """See `ResponseHandler`. Asked again, keep the old reply until the new one starts."""
        if self._is_sent:
            if not self._has_answered:  # on another connection: the engine closed the first
                self._writer.set_source(reply, anew=False)
            return
        context = self._context
        self._keeper = context.expect_reply()
        self._aligner = LogprobAligner() if context.parsed.logprobs else None
        is_labelled = context.stream and self._writer.choice is not None  # its texts are not of choice 0
        self._takes_short_way = self._keeper is None and self._aligner is None and not is_labelled
        self._writer.set_source(reply, anew=True)
        meter = None if self._watch is None else self._watch.meter
        self._pipeline = Pipeline(context.policy, meter, self._aligner)
        self._is_sent = True

    def begins(self, reply: EngineReply, over: asyncio.Future[None]) -> bool:
        """See `ResponseHandler`. A stream is read from now on, until it is `over`."""
        if reply.status != 200 or not reply.is_stream:
            return False
        try:
            self._answered(reply, over)
        except BaseException as error:
            self._fail(as_internal_error(error))
        return True

    def _answered(self, reply: EngineReply, over: asyncio.Future[None]) -> None:
        """The engine has answered 200; for the second time, if it continues a thought."""
        self._over = over
        if self._has_answered:
            size, self._tokens = self._pipeline.size, 0
            self._aligner = self._aligner and LogprobAligner()
            self._pipeline = Pipeline(answer_policy(self._context.policy), aligner=self._aligner)
            self._pipeline.size = size  # both replies share one limit of size
            self._writer.set_source(reply, anew=False)
        self._has_answered = True

    def _stop(self) -> None:
        """Ask nothing more, and keep the stream core's facts for accounting."""
        if not self._over.cancel() and not self._over.cancelled():
            self._over.exception()  # marked as retrieved, also if this task was cancelled in the same moment
        context = self._context
        made = [] if self._keeper is None else self._keeper.sources
        context.calls = [*self._pipeline.call_sources, *made]
        context.audit.dropped = self._pipeline.dropped
        context.made += self._made()

    def _made(self) -> int:
        """Tokens that the engine has made, at least: by its running count, else one for each byte."""
        pipeline = self._pipeline
        if not self._context.is_metered:
            return pipeline.tokens  # for accounting only
        if self._deadlines.full_since:
            return MOST  # more may have been made than was read
        if stated := _STATED.findall(self._last):
            return int(stated[-1])
        return max(pipeline.size - DELTA_SIZE * pipeline.tokens + self._beyond_ascii, pipeline.tokens)

    # The reply, as it comes.

    def data(self, data: bytes) -> None:
        """A read from the engine."""
        if self._over.done():
            return
        pipeline, now = self._pipeline, time.perf_counter()
        self._bytes += len(data)
        if self._context.is_metered:
            self._last = data
            if not data.isascii():
                self._beyond_ascii += len(data) - len(data.decode("utf-8", "replace"))
        translate = as_upstream_error
        try:
            if self._watch is not None:
                self._read_each(data, now)
            elif not self._takes_short_way or (texts := pipeline.passes(data)) is None:
                self._take(pipeline.feed(data), now)
            else:
                translate = as_internal_error
                text = "".join(texts)
                self._deadlines.progress = now
                self._clocks.text(text, now)
                self._audit.text(text)
                if body := self._writer.encode(texts):
                    self._writer.write(body)
        except BaseException as error:
            return self._fail(translate(error))
        limits = self._limits
        if self._bytes > limits.max_stream_bytes or pipeline.size > limits.max_reply_bytes:
            self.end(self._too_large())

    def _read_each(self, data: bytes, now: float) -> None:
        """Payload by payload, while there is a limit to the thought."""
        for events in self._pipeline.feed_each(data):
            self._take(events, now)
            if self._watch is not None and not self._over.done():
                self._look(events, now, self._watch)
            if self._over.done():
                return

    def end(self, error: MannersError | None) -> None:
        """The engine's connection is done."""
        if self._over.done():
            return
        self._bug, pipeline = bug_behind(error), self._pipeline
        self._read(pipeline.close if error is None else partial(pipeline.abort, error.message, error.code))

    def _read(self, parse: Callable[[], Sequence[Event]]) -> None:
        try:
            events = parse()
        except BaseException as error:
            return self._fail(as_upstream_error(error))
        self._take(events, time.perf_counter())

    def _take(self, events: Sequence[Event], now: float) -> None:
        """Note a batch of events and show it."""
        if self._over.done():
            return
        try:
            if (tokens := self._pipeline.tokens) != self._tokens:
                self._deadlines.progress = now
                if not self._tokens:
                    self._clocks.token(now)
                    self._context.route.backend.record_success(now - self._deadlines.begun)
                self._tokens = tokens
            if events:
                self._show(events, now)
        except BaseException as error:
            self._fail(as_internal_error(error))

    def _show(self, events: Sequence[Event], now: float) -> None:
        context = self._context
        if self._cut is not None:
            events = [_summed(event, self._cut) if type(event) is Usage else event for event in events]
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
            error = in_stream(last) if context.begun else from_stream(last)
            error.__cause__ = self._bug
            if is_filtered and (sentence := self._sentence()):
                context.filtered = error
                self._aligner = None  # no engine made the tokens of this sentence
                events = [*events[:-1], Text(0, sentence), Finish(0, "stop"), Done()]
            elif not context.begun:
                return self._fail(error)
            else:
                context.broken = error
                events = [*events[:-1], Broken(error.message, error.code)]
        if self._aligner is not None:
            events = self._aligner.align(events)
            if self._aligner.is_over and "logprobs" not in context.ignored:
                context.ignored = [*context.ignored, "logprobs"]
        if is_last and self._writer.choice is None:
            self._deadlines.over()
        self._writer.events(events, is_last)
        if self._clocks.first_content == now:
            context.overhead += time.perf_counter() - now
        if is_last and not self._over.done():
            self._over.set_result(None)

    def _sentence(self) -> str:
        """The model's sentence in place of a reply that was filtered to nothing.

        "": another engine may answer, or the caller asked for JSON or the model has no sentence, and gets the error.
        """
        context = self._context
        sentence = "" if context.policy.json else context.model.when_nothing_is_left
        return sentence if sentence and self._deadlines.next_engine() is None else ""

    def _fail(self, error: MannersError) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _too_large(self) -> EngineBroke:
        most = f"{self._limits.max_stream_bytes} bytes, or {self._limits.max_reply_bytes} of speech"
        return EngineBroke(f"the engine's reply is too large: more than {most}", "upstream_too_large")

    # The thought's limit.

    def _look(self, events: Sequence[Event], now: float, watch: ThoughtWatch) -> None:
        if watch.look(events, self._pipeline):
            self._watch, self._context.cut = None, watch.due
            if watch.limit.can_end:
                self._take(self._pipeline.cut(), now)
                self._cut = watch.meter
                self._over.set_result(None)
        elif watch.over:
            self._watch = None


def _summed(usage: Usage, cut: ThoughtMeter) -> Usage:
    """The usage of a reply and of the thought that it continues: their prompt counts once."""
    given, thought = len(cut.prompt), len(cut.tokens)
    made = thought + usage.tokens("completion_tokens")
    counts = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    return Usage({**counts, "completion_tokens_details": {"reasoning_tokens": thought}})


async def pass_through(context: RequestContext, surface: Embeddings, writer: ReplyWriter) -> None:
    """Ask the engine for a reply without text, and hand it on whole; it is due within the first token's time.

    Raises what the engine did wrong.
    """
    route, deadlines = context.route, context.deadlines
    context.overhead = time.perf_counter() - context.start - context.queued
    deadlines.begin()
    status, _, raw = await route.backend.upstream.read(
        route.url + surface.engine_path, context.body, context.engine_headers
    )
    if status != 200:
        raise from_status(status, raw, surface.engine_path)
    body, context.usage = surface.hand_on(raw, context.head.model)
    if route.kind == "embeddings":  # a vector is no evidence that an engine streams
        route.backend.record_success(0.0)
    deadlines.over()
    await writer.deliver(body)
    context.delivered(0)


async def complete_choices(context: RequestContext, writer: ReplyWriter) -> None:
    """Ask the engine for several choices (`n`, or a list of prompts), one after the other, in one place.

    Every choice has its own exchange: stream core, thought limit, reply budget and time to first token; the total time is the
    whole request's. Raises the first fault, unless the stream carried it.
    """
    tried: list[RequestContext] = []  # of each choice that was begun
    messages: list[bytes] = []  # for a caller who does not stream
    try:
        for writer.choice in range(context.parsed.count):
            one = context.branch(writer.choice)
            tried.append(one)
            await Exchange(one, writer).run()
            if one.broken is not None:
                return
            if not context.stream:
                messages.append(writer.message())
    finally:
        writer.choice = None
        if tried:
            context.gather(tried)
    context.deadlines.begin()
    context.deadlines.over()
    if context.stream:
        writer.events([*([] if context.usage is None else [context.usage]), Done()], True)
    await writer.deliver(joined_message(messages, context.usage) if messages else b"")
    context.delivered(0)
