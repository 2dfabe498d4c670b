"""Joins the fragments of tool calls, by index, without repairing anything. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from gates.reply.events import CallArguments, CallStart


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A tool call of a reply: `arguments` is the raw text, whether or not it is JSON."""

    index: int
    id: str | None
    name: str
    arguments: str


@dataclass(slots=True)
class _OpenCall:
    start: CallStart
    fragments: list[str] = field(default_factory=list)

    def repeats(self, start: CallStart) -> bool:
        """Whether a name under an index in use belongs to the same call: some servers write it into every delta, others
        (transformers serve) send each call whole, always with index 0 and the same id.
        """
        is_same = start.name == self.start.name and start.id in (None, self.start.id)
        return is_same and not _is_object("".join(self.fragments))


def join_calls(events: Iterable[CallStart | CallArguments]) -> tuple[ReplyCall, ...]:
    """The calls that these events of one reply make. Arguments that no name came before are a call without a name."""
    calls: list[_OpenCall] = []
    last: dict[int, _OpenCall] = {}
    for event in events:
        call = last.get(event.index)
        if call is None or (isinstance(event, CallStart) and not call.repeats(event)):
            start = event if isinstance(event, CallStart) else CallStart(event.choice, event.index, "")
            call = last[event.index] = _OpenCall(start)
            calls.append(call)
        if isinstance(event, CallArguments):
            call.fragments.append(event.fragment)
    return tuple(
        ReplyCall(call.start.index, call.start.id, call.start.name, "".join(call.fragments)) for call in calls
    )


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
