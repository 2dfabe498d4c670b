"""Detects replies with nothing to hear: `find_empty`. Pure."""

import re
import unicodedata
from typing import Final

from gates.detect.detection import Detection, detection
from gates.detect.tags import markers

_HEARD: Final = re.compile(r"[^\W_]")


def find_empty(text: str, *, calls: int = 0) -> list[Detection]:
    """At most one detection; a reply with tool calls may be silent. Kinds: nothing; invisible (white space, control
    characters); tags (with or without a thought between them); signs (no letter and no digit: "...", an emoji).
    """
    if calls:
        return []
    if not text:
        return [Detection("empty", "nothing", 0, 0, "")]
    if not _HEARD.search(text):
        kind = "signs" if any(_visible(character) for character in text) else "invisible"
        return [detection("empty", kind, text, 0, len(text))]
    if "<" in text and not _HEARD.search(_outside(text)):
        return [detection("empty", "tags", text, 0, len(text))]
    return []


def _visible(character: str) -> bool:
    return unicodedata.category(character)[0] not in "ZC"


def _outside(text: str) -> str:
    """The text without whole thoughts, and without single tags."""
    said, at, is_thought = [], 0, False
    for marker, start, end in markers(text):
        said.append("" if is_thought else text[at:start])
        is_thought = not marker.closes if marker.kind == "think" else is_thought
        at = end
    return " ".join([*said, "" if is_thought else text[at:]])
