"""Merging of text spans, and fast lookup of what they contain. Pure."""

from bisect import bisect_right
from collections.abc import Iterable

Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, with overlapping ones joined."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start < out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


class SpanSet:
    """A set of spans for containment and overlap queries."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = merged(spans)

    def holds(self, start: int, end: int) -> bool:
        """Whether this span lies inside the covered text."""
        i = bisect_right(self._spans, (start, float("inf"))) - 1
        return i >= 0 and end <= self._spans[i][1]

    def touches(self, start: int, end: int) -> bool:
        """Whether this span overlaps the covered text."""
        i = bisect_right(self._spans, (end, -1)) - 1
        return i >= 0 and start < self._spans[i][1]
