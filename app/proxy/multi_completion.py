"""Several choices of one request: `n`, or a list of prompts. Each is an exchange of its own with the same engine.

    Exchange -> ChoiceWriter -> one StreamWriter -> caller, once for each choice

The choices are made one after the other in the request's place, so they take no place of others. Every choice has its own
stream core, thought limit, reply budget and time to first token; the total time is the whole request's. The first
fault ends the request.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from app.api.surface import Counts, joined_message, joined_usage
from app.proxy.context import RequestContext
from app.proxy.deadlines import Deadlines
from app.proxy.exchange import Exchange
from app.proxy.keepalive import KeepAlive
from app.proxy.reply_writer import ReplyWriter, StreamWriter, WholeWriter, send_whole
from app.proxy.response_writer import Send
from app.stream.audit import ReplyAudit
from app.upstream.connection import EngineReply
from gates.reply.events import Broken, Done, Event, Text, Usage


class MultiCompletion:
    """Asks the context's engine for all choices and hands them on (`run`)."""

    def __init__(
        self, context: RequestContext, deadlines: Deadlines, send: Send, keepalive: KeepAlive | None
    ) -> None:
        self._context = context
        self._deadlines = deadlines
        self._send = send
        self._keepalive = keepalive
        self._tried: list[RequestContext] = []  # of each choice that was begun
        self._whole: list[ChoiceCollector] = []  # for a caller who does not stream
        self._out: StreamWriter | None = None  # to a caller who streams, once the engine has answered

    async def run(self) -> None:
        """Ask for every choice and hand them on. Raises the first fault, unless the stream carried it."""
        context = self._context
        self._deadlines.replies = context.parsed.count + 1  # and their common end
        try:
            try:
                for index in range(context.parsed.count):
                    one = context.branch(index)
                    self._tried.append(one)
                    await Exchange(one, self._deadlines, self._writer).run()
                    if one.broken is not None:
                        return
            finally:
                self._gather()
            await self._deliver()
        finally:
            if self._out is not None:
                self._out.abandon()

    def _writer(self, reply: EngineReply) -> ReplyWriter:
        """The writer of the choice that was begun last."""
        context = self._tried[-1]
        if not context.stream:
            self._whole.append(ChoiceCollector(context, self._deadlines, self._send))
            return self._whole[-1]
        if self._out is None:
            self._out = StreamWriter(self._context, self._deadlines, reply, self._send, self._keepalive)
        else:
            self._out.answered_by(reply, anew=False)
        return ChoiceWriter(context, self._deadlines, self._out)

    def _gather(self) -> None:
        """The facts of all choices as those of one reply; clocks and tokens are those of the first choice."""
        context, tried = self._context, self._tried
        if not tried:
            return
        first = tried[0]
        context.clocks, context.queued, context.overhead = first.clocks, first.queued, first.overhead
        context.clocked_tokens = 0 if first.usage is None else first.usage.tokens("completion_tokens")
        context.audit = ReplyAudit(False, [one.audit for one in tried])
        context.calls = [source for one in tried for source in one.calls]
        context.made += sum(one.made if one.usage is None else Counts.of(one.usage).made for one in tried)
        context.hinted = next((one.hinted for one in tried if one.hinted), context.hinted)
        context.cut = next((one.cut for one in tried if one.cut), None)
        context.broken = next((one.broken for one in tried if one.broken is not None), None)
        context.filtered = next((one.filtered for one in tried if one.filtered is not None), None)
        usages = [one.usage for one in tried]
        per_prompt = context.parsed.count // max(len(context.parsed.prompts), 1)
        context.usage = joined_usage(usages, per_prompt) if len(usages) == context.parsed.count else None

    async def _deliver(self) -> None:
        """All choices are over: the end of the stream, or the whole reply."""
        context = self._context
        async with self._deadlines.attempt():
            self._deadlines.over()
            if self._out is None:
                message = joined_message([one.message() for one in self._whole], context.usage)
                await send_whole(message, context, self._deadlines, self._send)
            else:
                self._out.events([*([] if context.usage is None else [context.usage]), Done()], True)
                await self._out.deliver()
        context.delivered(0)


class ChoiceCollector(WholeWriter):
    """Keeps one choice for the whole reply."""

    def message(self) -> bytes:
        return self._collector.message()

    async def deliver(self) -> None:
        """Nothing goes out before the last choice is over."""


class ChoiceWriter:
    """Writes one choice into the stream, under its index. Its count and its end are told for all choices together."""

    def __init__(self, context: RequestContext, deadlines: Deadlines, out: StreamWriter) -> None:
        self._context = context
        self._deadlines = deadlines
        self._out = out

    def answered_by(self, reply: EngineReply, anew: bool) -> None:
        self._out.answered_by(reply, anew=False)

    def texts(self, texts: Sequence[str]) -> None:
        self._out.events([Text(self._context.choice, text) for text in texts], False)

    def events(self, events: Sequence[Event], is_last: bool) -> None:
        shown = [self._indexed(event) for event in events if not isinstance(event, Usage | Done)]
        is_broken = bool(shown) and type(shown[-1]) is Broken
        if is_broken:
            self._deadlines.replies = 1
            self._deadlines.over()
        if shown and self._out.events(shown, is_broken):
            self._context.begun = True

    def _indexed(self, event: Any) -> Event:
        return event if type(event) is Broken else replace(event, choice=self._context.choice)

    async def deliver(self) -> None:
        """Wait until the caller has the choice: the next one is not read for a caller who is behind."""
        await self._out.deliver()

    def abandon(self) -> None:
        """The stream goes on with the next choice."""
