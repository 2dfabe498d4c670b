"""An assistant's old turns: leaked tags in a history breed more of them. Pure."""

from typing import Any

from app.stream.holdback import UNBOUNDED, HoldBack, ThinkPolicy
from app.stream.parser import Parser, Rules
from gates.contracts.markers import START
from gates.reply.events import Finish, Text


def joined(content: str | list[dict[str, Any]]) -> str:
    """One text: a tag may be split between two parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def without_thoughts(text: str) -> str:
    """The visible part of a turn. Slow for a long text full of tags, so call it once a request."""
    if not any(first in text for first in START):
        return text
    parser = Parser(Rules(finds_calls=False), HoldBack(ThinkPolicy(guard=UNBOUNDED)))
    events = [*parser.feed(Text(0, text)), *parser.feed(Finish(0, "stop"))]
    return "".join(event.text for event in events if isinstance(event, Text))
