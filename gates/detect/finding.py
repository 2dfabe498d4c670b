"""What every detector hands back: one finding, and the place where a person can look at it. Values only.

A detector is a pure function from a reply's text (and, for some, what was asked) to findings; none
is a clean bill. Nothing here asks a model: two people who run a detector on the same text get the
same findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Detector = Literal[
    "leak", "raw_call", "empty", "toolcall", "markdown", "loop",
    "verbosity", "speakable", "script", "answer", "refusal",
]  # fmt: skip

LONGEST_EXCERPT: Final = 80  # characters, the ellipsis included


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault in one part of a reply.

    `kind` is the detector's own word for it. `start` and `end` index the text of `part`, which is
    "content", "reasoning", or "calls[i]" for the raw arguments of a call; a fault with no place of
    its own has an empty span. A finding that does not `decide` is evidence beside others, and
    makes no reply bad by itself.
    """

    detector: Detector
    kind: str
    start: int
    end: int
    excerpt: str
    part: str = "content"
    decides: bool = True

    def __str__(self) -> str:
        """One line of evidence: markdown: bullet_list at 14: '- milk'."""
        place = f"{self.start}" if self.part == "content" else f"{self.part} {self.start}"
        return f"{self.detector}: {self.kind} at {place}: {self.excerpt!r}"


def found(
    detector: Detector,
    kind: str,
    text: str,
    start: int,
    end: int,
    *,
    part: str = "content",
    decides: bool = True,
) -> Finding:
    """A finding whose excerpt is cut from the text that it indexes."""
    return Finding(detector, kind, start, end, excerpt(text[start:end]), part, decides)


def excerpt(text: str) -> str:
    """At most 80 characters of a text; what was cut off is an ellipsis."""
    return text if len(text) <= LONGEST_EXCERPT else text[: LONGEST_EXCERPT - 1] + "…"


def decide(findings: Iterable[Finding]) -> bool:
    """Whether any finding makes the reply bad."""
    return any(finding.decides for finding in findings)
