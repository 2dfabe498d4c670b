"""Several choices of one request: `n`, or a list of prompts. Each is an exchange of its own with the same engine.

The choices are made one after the other in the request's place, so they take no place of others. Every choice has its own
stream core, thought limit, reply budget and time to first token; the total time is the whole request's. The first
fault ends the request.
"""

from collections.abc import Sequence

from app.api.surface import Counts, joined_message, joined_usage
from app.proxy.context import RequestContext
from app.proxy.exchange import Exchange
from app.proxy.reply_writer import ReplyWriter
from app.stream.audit import ReplyAudit
from gates.reply.events import Done


async def complete_choices(context: RequestContext, out: ReplyWriter) -> None:
    """Ask the context's engine for all choices and hand them on. Raises the first fault, unless the stream carried it."""
    tried: list[RequestContext] = []  # of each choice that was begun
    whole: list[bytes] = []  # for a caller who does not stream
    try:
        for out.choice in range(context.parsed.count):
            one = context.branch(out.choice)
            tried.append(one)
            await Exchange(one, out).run()
            if one.broken is not None:
                return
            if not context.stream:
                whole.append(out.message())
    finally:
        out.choice = None
        if tried:
            _gather(context, tried)
    context.deadlines.begin()
    context.deadlines.over()
    if context.stream:
        out.events([*([] if context.usage is None else [context.usage]), Done()], True)
        await out.deliver()
    else:
        await out.send(joined_message(whole, context.usage))
    context.delivered(0)


def _gather(context: RequestContext, tried: Sequence[RequestContext]) -> None:
    """The facts of all choices as those of one reply; its clocks are those of the first choice."""
    first, usages = tried[0], [one.usage for one in tried]
    context.clocks, context.queued, context.overhead = first.clocks, first.queued, first.overhead
    context.audit = ReplyAudit(False, [one.audit for one in tried])
    context.calls = [source for one in tried for source in one.calls]
    context.made += sum(one.made if one.usage is None else Counts.of(one.usage).made for one in tried)
    context.cut = next((one.cut for one in tried if one.cut), None)
    context.broken = next((one.broken for one in tried if one.broken), None)
    context.filtered = next((one.filtered for one in tried if one.filtered), None)
    per_prompt = context.parsed.count // max(len(context.parsed.prompts), 1)
    context.usage = joined_usage(usages, per_prompt) if len(usages) == context.parsed.count else None
