"""The result of all detectors, which are pure functions of a reply: a detection, with the place where a person can check it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LONGEST_EXCERPT: Final = 80  # characters, the ellipsis included


@dataclass(frozen=True, slots=True)
class Detection:
    """One fault in `part` of a reply: "content", "reasoning", or "calls[i]". `kind` is specific to the detector.

    A detection that does not `decide` is supporting evidence and does not make a reply bad by itself.
    """

    detector: str
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


def detection(
    detector: str,
    kind: str,
    text: str,
    start: int,
    end: int,
    *,
    part: str = "content",
    decides: bool = True,
) -> Detection:
    """A detection with an excerpt of the text that it indexes."""
    return Detection(detector, kind, start, end, excerpt(text[start:end]), part, decides)


def excerpt(text: str) -> str:
    """At most 80 characters of a text, with an ellipsis if it was shortened."""
    return text if len(text) <= LONGEST_EXCERPT else text[: LONGEST_EXCERPT - 1] + "…"


def decide(findings: Iterable[Detection]) -> bool:
    """Whether any detection makes the reply bad."""
    return any(finding.decides for finding in findings)
