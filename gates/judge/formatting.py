"""Formatted numbers and names of reports. Pure. A bound is rounded away from the value that it bounds."""

from collections.abc import Sequence
from math import ceil, floor, isinf
from typing import Final, Literal

from gates.contracts.verdict import METRICS
from gates.detect.catalogue import GATES

Rounding = Literal["near", "up", "down"]
_NOISE: Final = 1e-9  # floating-point error: 5.000000000000001 must not be rounded up to 5.1


def title(gate: str) -> str:
    """A gate's title, or its name if it has none. `ttft[2k]` is of one prompt length, `tools[no call]` of the prompts that want none."""
    name, _, part = gate.rstrip("]").partition("[")
    known = GATES.get(name) or METRICS.get(name)
    of = f": {part}" if name in GATES else f", prompts of {part}"
    return (known.title if known else name) + (of if part else "")


def format_number(value: float, digits: int, way: Rounding = "near") -> str:
    """A number with `digits` decimals, rounded to the nearest, up or down."""
    if isinf(value):
        return "infinity"
    scale = 10**digits
    scaled = value * scale
    if way == "up":
        scaled = ceil(scaled - _NOISE)
    elif way == "down":
        scaled = floor(scaled + _NOISE)
    return f"{scaled / scale:.{digits}f}"


def points(share: float, way: Rounding = "near") -> str:
    """A share in percent, without the sign: 0.018 is "1.8", 0.87 is "87", 0.0004 is "0.04"."""
    value = 100.0 * share
    size = abs(value)
    if size < 1e-9 or abs(value - round(value)) < _NOISE:
        return f"{round(value)}"
    digits = 0 if 9.95 <= size < 90 else 1 if size >= 0.995 else 2
    text = format_number(value, digits, way)
    return text.rstrip("0").rstrip(".") if digits == 2 else text


def percent(share: float, way: Rounding = "near") -> str:
    """A share in percent: 0.018 is "1.8 %"."""
    return f"{points(share, way)} %"


def join_names(names: Sequence[str], most: int = 3) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, noun: str) -> str:
    """A number and its noun: 2 rules, 1 rule."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def interval_method(name: str, level: float, confidence: float) -> str:
    """The name of an interval's method; with the level of each look if that is stricter than the confidence."""
    return name if level == confidence else f"{name}, {percent(level)} each look"
