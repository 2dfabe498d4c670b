"""Numbers and gates as a person says them. A bound is rounded away from what it bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isinf
from typing import Final, Literal

Way = Literal["near", "up", "down"]
_NOISE: Final = 1e-9  # of binary fractions: 5.000000000000001 is not rounded up to 5.1


@dataclass(frozen=True, slots=True)
class Phrase:
    """How a gate's outcomes are said: of answers in the past, of a model in the present."""

    bad: str
    bads: str
    good: str
    goods: str


PHRASES: Final = {
    "leak": Phrase("leaked", "leaks", "did not leak", "does not leak"),
    "raw_call": Phrase("spoke a raw tool call", "speaks raw tool calls", "spoke no tool call",
                       "speaks no tool calls"),
    "empty": Phrase("came empty", "answers with nothing", "said something", "says something"),
    "tools": Phrase("made a wrong call", "makes the wrong call", "made the right call",
                    "makes the right call"),
    "no_markdown": Phrase("held markdown", "writes markdown", "stayed free of markdown",
                          "stays free of markdown"),
    "factual": Phrase("gave a wrong answer", "is wrong", "gave the right answer", "is right"),
    "reasoning": Phrase("reasoned wrongly", "reasons wrongly", "reasoned rightly", "reasons rightly"),
    "loop": Phrase("went in a loop", "goes in a loop", "stayed out of loops", "stays out of loops"),
    "verbosity": Phrase("ran too long", "runs too long", "kept to their time", "keeps to its time"),
    "speakable": Phrase("could not be spoken", "cannot be spoken", "could be spoken", "can be spoken"),
    "script": Phrase("left their script", "leaves its script", "kept to their script",
                     "keeps to its script"),
}  # fmt: skip
_ANY: Final = Phrase("failed", "fails", "passed", "passes")


def phrase(gate: str) -> Phrase:
    """How a gate's outcomes are said."""
    return PHRASES.get(gate, _ANY)


def rounded(value: float, digits: int, way: Way = "near") -> str:
    """A number with so many decimals, to the nearest, up or down."""
    if isinf(value):
        return "infinity"
    scale = 10**digits
    scaled = value * scale
    if way == "up":
        scaled = ceil(scaled - _NOISE)
    elif way == "down":
        scaled = floor(scaled + _NOISE)
    return f"{scaled / scale:.{digits}f}"


def points(share: float, way: Way = "near") -> str:
    """A share in hundredths, without the sign: 0.018 is "1.8", 0.87 is "87", 0.0004 is "0.04"."""
    value = 100.0 * share
    size = abs(value)
    if size < 1e-9 or abs(value - round(value)) < _NOISE:
        return f"{round(value)}"
    digits = 0 if 9.95 <= size < 90 else 1 if size >= 0.995 else 2
    text = rounded(value, digits, way)
    return text.rstrip("0").rstrip(".") if digits == 2 else text


def percent(share: float, way: Way = "near") -> str:
    """A share as a person reads it: 0.018 is "1.8 %"."""
    return f"{points(share, way)} %"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, noun: str) -> str:
    """A number and its noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def method(name: str, level: float, confidence: float) -> str:
    """How a bound was made; at a stricter level than it promises where there may be a second look."""
    return name if level == confidence else f"{name}, {percent(level)} each look"
