"""The geometry of the report's charts, in SVG units; the page's template draws them. Pure."""

import math
from collections.abc import Callable, Sequence
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


class CurvePlot(NamedTuple):
    """Curves as SVG paths; `ticks` are the labels of the x axis."""

    paths: tuple[tuple[str, str], ...]  # (class, path)
    ticks: tuple[Label, ...]
    limit: float | None = None
    allowed: tuple[float, float] | None = None


def linear_scale(low: float, high: float, start: float, end: float) -> Scale:
    """A linear map of [low, high] to [start, end]; values outside are clamped."""
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * min(1.0, max(0.0, (value - low) / span))


def axis_ticks(most: float) -> list[float]:
    """Round numbers from 0 to about `most`, in about four steps of 1, 2 or 5 times a power of ten."""
    if most <= 0 or not math.isfinite(most):
        return [0.0, 1.0]
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    return [i * step for i in range(math.ceil(most / step) + 1)]


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


def limit_curves(timings: Sequence[Distribution], limit: float | None) -> CurvePlot:
    """Per arm, the share of replies within each possible limit: rising for times, falling for rates; higher is better."""
    least = is_rate(timings[0].gate)
    most = axis_ticks(max(*(_quantile(timing, 0.97) for timing in timings), 1.1 * (limit or 0.0)))
    x, y = linear_scale(0.0, most[-1], 40.0, 350.0), linear_scale(0.0, 1.0, 150.0, 10.0)
    ticks = [Label(x(tick), "middle", plain(tick)) for tick in most[:-1]]
    ticks.append(Label(x(most[-1]), "end", f"{plain(most[-1])} {timings[0].unit}"))
    paths = tuple((f"ecdf {t.arm}", _steps(t, x, y, most[-1], least)) for t in timings)
    if limit is None:
        return CurvePlot(paths, tuple(ticks))
    allowed = (x(limit), 350.0 - x(limit)) if least else (40.0, x(limit) - 40.0)
    return CurvePlot(paths, tuple(ticks), x(limit), allowed)


def _steps(timing: Distribution, x: Scale, y: Scale, most: float, at_least: bool) -> str:
    """The step function of the points up to `most`; failed requests keep it below 100 %."""
    path = f"M{x(0):.1f} {y(1.0 if at_least else 0.0):.1f}"
    for rank, value in enumerate((p for p in timing.points if p <= most), start=1):
        share = rank / len(timing.points)
        path += f"H{x(value):.1f}V{y(1 - share if at_least else share):.1f}"
    return path + f"H{x(most):.1f}"


def _quantile(timing: Distribution, q: float) -> float:
    """A quantile for the chart: the nearest of the finite points."""
    finite = [p for p in timing.points if math.isfinite(p)] or [0.0]
    return finite[round(q * (len(finite) - 1))]


def summary(timing: Distribution) -> str:
    """One arm in words: its median, the 95th percentile (the 5th of a rate), and the share of failures."""
    slow, last = is_rate(timing.gate), len(timing.points) - 1
    middle, tail = (plain(timing.points[round(q * last)]) for q in (0.5, 0.05 if slow else 0.95))
    never = sum(map(math.isinf, timing.points)) / len(timing.points)
    words = f"{timing.arm}: median {middle}, {'5th' if slow else '95th'} percentile {tail} {timing.unit}, of {timing.n}"
    return words + (f"; {percent(never)} never came" if never else "")
