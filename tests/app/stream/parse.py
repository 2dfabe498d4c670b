"""The stream core as a function from a reply to what its caller hears, for the corpora of replies."""

import json

from app.stream.holdback import UNBOUNDED, ThinkPolicy
from app.stream.pipeline import StreamPolicy, _Choice
from app.stream.schema import Tools
from gates.reply.events import CallArguments, CallStart, Event, Finish, Text, Thought
from tests.replies import DECLARATIONS, Call


def policy_for(format: str, tools: list[str], json_mode: bool, guard: int) -> StreamPolicy:
    """A request that declares these tools."""
    declared = Tools([DECLARATIONS[name] for name in tools]) if tools else None
    return StreamPolicy(
        ThinkPolicy(guard=guard), declared, "t", json=json_mode, format="" if format == "none" else format
    )


def fields(reasoning: str, content: str, size: int | None) -> list[Event]:
    """A reply's fields in pieces of so many characters; None: each in one."""
    out: list[Event] = []
    for kind, text in ((Thought, reasoning), (Text, content)):
        step = size or max(len(text), 1)
        out += [kind(0, text[at : at + step]) for at in range(0, len(text), step)]
    return out


def parse(
    format: str, tools: list[str], json_mode: bool, reasoning: str, content: str, size: int | None
) -> tuple[str, list[Call]]:
    """See `tests.replies.Parse`."""
    choice = _Choice(policy_for(format, tools, json_mode, 0 if size else UNBOUNDED))
    events = [made for event in fields(reasoning, content, size) for made in choice.feed(event)]
    events += choice.feed(Finish(0, "stop"))
    speech = "".join(event.text for event in events if type(event) is Text)
    calls: list[list[str]] = []
    for event in events:
        if type(event) is CallStart:
            calls.append([event.name, ""])
        elif type(event) is CallArguments:
            calls[-1][1] += event.fragment
    return speech, [(name, json.loads(arguments)) for name, arguments in calls]
