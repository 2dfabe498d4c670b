"""The geometry of the report's bars, in SVG units; the page's template draws them. Pure."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from gates.contracts.verdict import GateResult
from gates.judge.formatting import percent
from gates.report.labels import amount, higher_is_better, is_rate, plain
from gates.report.statement import Distribution

Scale = Callable[[float], float]

WIDTH: Final = 240.0
_LEFT, _RIGHT = 6.0, 234.0  # where a bar's axis begins and ends


class Label(NamedTuple):
    """A text, and where it stands."""

    x: float
    anchor: str
    words: str


class IntervalBar(NamedTuple):
    """An estimate and its interval against a limit. `allowed` is (x, width) of the allowed side."""

    label: Label
    whisker: tuple[float, float]
    caps: tuple[float, ...]
    dot: float | None
    limit: float | None
    allowed: tuple[float, float] | None


def linear_scale(low: float, high: float, start: float, end: float) -> Scale:
    """A linear map of [low, high] to [start, end]; values outside are clamped."""
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * min(1.0, max(0.0, (value - low) / span))


def interval_bar(gate: GateResult) -> IntervalBar | None:
    """The bar of one rule; None without an interval or a limit. Rule A allows no share, so no side is shaded there."""
    if gate.interval is None or gate.limit is None:
        return None
    low, high = gate.interval.low, gate.interval.high
    at = linear_scale(*_domain(gate), _LEFT, _RIGHT)
    limit, allowed = None, None
    if gate.rule == "zero":
        place = at(low or 0.0 if high is None else high)
        words = f"≥ {percent(low or 0.0, 'down')}" if high is None else f"≤ {percent(high, 'up')}"
    else:
        place = limit = at(gate.limit)
        words = f"{'≥' if higher_is_better(gate) else '≤'} {amount(gate.limit, gate)}"
        allowed = (limit, _RIGHT - limit) if higher_is_better(gate) else (_LEFT, limit - _LEFT)
    left, right = _LEFT if low is None else at(low), _RIGHT if high is None else at(high)
    return IntervalBar(
        label=Label(place, _anchor(place), words),
        whisker=(left, max(right, left + 0.5)),
        caps=tuple(at(end) for end in (low, high) if end is not None),
        dot=None if gate.estimate is None else at(gate.estimate),
        limit=limit,
        allowed=allowed,
    )


def _anchor(x: float) -> str:
    """Keeps a label inside its chart."""
    return "start" if x < 0.3 * WIDTH else "end" if x > 0.7 * WIDTH else "middle"


def _domain(gate: GateResult) -> tuple[float, float]:
    """The range of the axis: 0 to 1 for shares of success, else as much as is needed."""
    assert gate.interval is not None
    if gate.rule == "rate":
        return 0.0, 1.0
    found = (gate.limit, gate.estimate, gate.interval.low, gate.interval.high)
    reach = 1.25 * max(abs(v) for v in found if v is not None and math.isfinite(v))
    if gate.rule in ("compare", "ratio"):
        return -reach, reach
    return 0.0, max(reach, 0.05) if gate.rule == "zero" else reach


def summary(timing: Distribution) -> str:
    """One arm in words: its median, the 95th percentile (the 5th of a rate), and the share of failures."""
    slow, last = is_rate(timing.gate), len(timing.points) - 1
    middle, tail = (plain(timing.points[round(q * last)]) for q in (0.5, 0.05 if slow else 0.95))
    never = sum(map(math.isinf, timing.points)) / len(timing.points)
    words = f"{timing.arm}: median {middle}, {'5th' if slow else '95th'} percentile {tail} {timing.unit}, of {timing.n}"
    return words + (f"; {percent(never)} never came" if never else "")
