"""Parts that all detectors use: the detection with its place, sets of spans, and text normalized for comparison. Pure."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

LONGEST_EXCERPT: Final = 80  # characters, the ellipsis included


@dataclass(frozen=True, slots=True)
class Detection:
    """One fault in `part` of a reply: "content", "reasoning", or "calls[i]". `kind` is specific to the detector."""

    detector: str
    kind: str
    start: int
    end: int
    excerpt: str
    part: str = "content"

    def __str__(self) -> str:
        """One line of evidence: markdown: bullet_list at 14: '- milk'."""
        place = f"{self.start}" if self.part == "content" else f"{self.part} {self.start}"
        return f"{self.detector}: {self.kind} at {place}: {self.excerpt!r}"


def detection(
    detector: str, kind: str, text: str, start: int, end: int, *, part: str = "content"
) -> Detection:
    """A detection with an excerpt of the text that it indexes."""
    return Detection(detector, kind, start, end, excerpt(text[start:end]), part)


def excerpt(text: str) -> str:
    """At most 80 characters of a text, with an ellipsis if it was shortened."""
    return text if len(text) <= LONGEST_EXCERPT else text[: LONGEST_EXCERPT - 1] + "…"


Span = tuple[int, int]


class SpanSet:
    """A set of spans for containment and overlap queries; overlapping ones count as one."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans: list[Span] = []
        for start, end in sorted(spans):
            if self._spans and start < self._spans[-1][1]:
                start, last = self._spans.pop()
                end = max(end, last)
            self._spans.append((start, end))

    def holds(self, start: int, end: int) -> bool:
        """Whether this span lies inside the covered text."""
        i = bisect_right(self._spans, (start, float("inf"))) - 1
        return i >= 0 and end <= self._spans[i][1]

    def touches(self, start: int, end: int) -> bool:
        """Whether this span overlaps the covered text."""
        i = bisect_right(self._spans, (end, -1)) - 1
        return i >= 0 and start < self._spans[i][1]


_NOT_ASCII_WORD = re.compile(r"[^a-z0-9]+")


@lru_cache(1 << 14)
def _kept(character: str) -> str:
    """A letter, a mark or a digit; nothing for an apostrophe, and a space for the rest."""
    if character in "'’ʼ":
        return ""
    return character if unicodedata.category(character)[0] in "LMN" else " "


def normalize(text: str) -> str:
    """Lower-case words with single spaces; "What's up?" gives "whats up". Marks are kept: without them Kannada is another word."""
    if text.isascii():
        return _NOT_ASCII_WORD.sub(" ", text.replace("'", "").lower()).strip()
    return " ".join("".join(map(_kept, unicodedata.normalize("NFKC", text))).casefold().split())
