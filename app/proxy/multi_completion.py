"""Several choices of one request: `n`, or a list of prompts. Each is an exchange of its own with the same engine.

    Exchange -> ChoiceWriter -> the request's StreamWriter -> caller, once for each choice

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
from app.proxy.reply_writer import ReplyWriter, StreamWriter, WholeWriter
from app.stream.audit import ReplyAudit
from app.upstream.connection import EngineReply
from gates.reply.events import Broken, Done, Event, Text, Usage


async def complete_choices(
    context: RequestContext, deadlines: Deadlines, out: StreamWriter | WholeWriter
) -> None:
    """Ask the context's engine for all choices and hand them on. Raises the first fault, unless the stream carried it."""
    deadlines.replies = context.parsed.count + 1  # and their common end
    tried: list[RequestContext] = []  # of each choice that was begun
    whole: list[WholeWriter] = []  # for a caller who does not stream
    try:
        for index in range(context.parsed.count):
            one = context.branch(index)
            tried.append(one)
            if isinstance(out, StreamWriter):
                await Exchange(one, deadlines, ChoiceWriter(one, deadlines, out)).run()
            else:
                whole.append(WholeWriter(one, deadlines, None))
                await Exchange(one, deadlines, whole[-1]).run()
            if one.broken is not None:
                return
    finally:
        if tried:
            _gather(context, tried)
    deadlines.begin()
    deadlines.over()
    if isinstance(out, StreamWriter):
        out.events([*([] if context.usage is None else [context.usage]), Done()], True)
        await out.deliver()
    else:
        await out.send(joined_message([one.message() for one in whole], context.usage))
    context.delivered(0)


def _gather(context: RequestContext, tried: Sequence[RequestContext]) -> None:
    """The facts of all choices as those of one reply; clocks and tokens are those of the first choice."""
    first = tried[0]
    context.clocks, context.queued, context.overhead = first.clocks, first.queued, first.overhead
    context.clocked_tokens = 0 if first.usage is None else first.usage.tokens("completion_tokens")
    context.audit = ReplyAudit(False, [one.audit for one in tried])
    context.calls = [source for one in tried for source in one.calls]
    context.made += sum(one.made if one.usage is None else Counts.of(one.usage).made for one in tried)
    context.cut = next((one.cut for one in tried if one.cut), None)
    context.broken = next((one.broken for one in tried if one.broken is not None), None)
    context.filtered = next((one.filtered for one in tried if one.filtered is not None), None)
    usages = [one.usage for one in tried]
    per_prompt = context.parsed.count // max(len(context.parsed.prompts), 1)
    context.usage = joined_usage(usages, per_prompt) if len(usages) == context.parsed.count else None


class ChoiceWriter(ReplyWriter):
    """Writes one choice into the stream, under its index. Its count and its end are told for all choices together."""

    def __init__(self, context: RequestContext, deadlines: Deadlines, out: StreamWriter) -> None:
        self._context = context
        self._deadlines = deadlines
        self._out = out

    def set_source(self, reply: EngineReply | None, anew: bool) -> None:
        self._out.set_source(reply, anew=anew and not self._context.begun)

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
