"""An assistant's old turns: leaked tags in a history breed more of them. Pure."""

from typing import Any

from app.stream.events import Finish, Text
from app.stream.holdback import UNBOUNDED, HoldBack, ThinkPolicy
from app.stream.segmenter import Segmenter
from app.stream.tags import ALL_FAMILIES, tag_set

BEGIN = "<[&\uff1c\u25c1"
"""What a tag may begin with."""


def joined(content: str | list[dict[str, Any]]) -> str:
    """One text: a tag may be split between two parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def without_thoughts(text: str) -> str:
    """What was visible of a turn. Takes long for long texts full of tags, so each is read once a request."""
    if not any(first in text for first in BEGIN):
        return text
    segmenter = Segmenter(0, tag_set(ALL_FAMILIES, ()), None)
    holdback = HoldBack(0, ThinkPolicy(guard=UNBOUNDED))
    segments = [*segmenter.feed(Text(0, text)), *segmenter.feed(Finish(0, "stop"))]
    events = [event for segment in segments for event in holdback.feed(segment)]
    return "".join(event.text for event in events if isinstance(event, Text))
