"""The result of all detectors, which are pure functions of a reply: a detection, with the place where a person can check it."""

from dataclasses import dataclass
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
