"""The charts of the report page as inline SVG: intervals and limits, curves, distributions. Pure.

Colours come from the page's style sheet by class, so that charts follow light mode, dark mode and
print. Verdicts and arms are never distinguished by colour alone, but also by shape, dash or text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gates.contracts.sample import CANDIDATE
from gates.contracts.verdict import CurvePoint, GateResult, Interval
from gates.judge.formatting import percent
from gates.report.html import Html, el, join
from gates.report.labels import amount, higher_is_better, interval_bound, is_rate, measured, plain, required
from gates.report.statement import Distribution

Scale = Callable[[float], float]

# The width of a bar chart in SVG units, and where its axis begins and ends.
_WIDTH, _LEFT, _RIGHT = 240.0, 6.0, 234.0


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


# ------------------------------------------------------------------------------------- one gate


def verdict_bar(gate: GateResult) -> Html | None:
    """The chart of one rule: marks for named prompts, else an interval against its limit."""
    if gate.rule == "floor":
        return named_prompt_marks(gate)
    return None if gate.interval is None or gate.limit is None else interval_bar(gate)


def named_prompt_marks(gate: GateResult) -> Html | None:
    """A mark for each named prompt, the bad ones last and crossed. None for more than 100."""
    if not 0 < gate.n <= 100:
        return None
    size = min(14.0, _WIDTH / min(gate.n, 25))
    marks = [_prompt_mark(i, i >= gate.n - gate.bad, size) for i in range(gate.n)]
    height = size * math.ceil(gate.n / 25)
    return _svg(_WIDTH, height, f"{gate.n - gate.bad} of {gate.n} named prompts", marks, class_="bar pips")


def _prompt_mark(number: int, bad: bool, size: float) -> Html:
    row, column = divmod(number, 25)
    x, y, inner = column * size, row * size, size - 3
    if not bad:
        return el("rect", x=x, y=y, width=inner, height=inner, rx=2, class_="pip")
    cross = f"M{x:.1f} {y:.1f}l{inner:.1f} {inner:.1f}m0 {-inner:.1f}l{-inner:.1f} {inner:.1f}"
    return el("path", d=cross, class_="pip-bad")


def interval_bar(gate: GateResult) -> Html:
    """Estimate and interval on an axis, with the limit and its allowed side shaded.

    For rule A no side is shaded, because no share of failures is allowed; the interval shows what cannot
    be excluded. An interval without a bound on a side extends to the end of the axis.
    """
    assert gate.interval is not None and gate.limit is not None
    at = linear_scale(*_domain(gate), _LEFT, _RIGHT)
    limit, word = at(gate.limit), f"{'≥' if higher_is_better(gate) else '≤'} {amount(gate.limit, gate)}"
    allowed = (limit, _RIGHT) if higher_is_better(gate) else (_LEFT, limit)
    parts = [el("line", x1=_LEFT, x2=_RIGHT, y1=10, y2=10, class_="axis")]
    if gate.rule == "zero":
        parts += _label(at(_informative_end(gate.interval)), interval_bound(gate))
    else:
        parts.append(
            el("rect", x=allowed[0], y=1, width=allowed[1] - allowed[0], height=18, class_="allowed")
        )
        parts.append(el("line", x1=limit, x2=limit, y1=0, y2=20, class_="limit"))
        parts += _label(limit, word)
    parts += _whisker(gate.interval, at)
    if gate.estimate is not None:
        parts.append(el("circle", cx=at(gate.estimate), cy=10, r=4, class_="dot"))
    label = f"measured {measured(gate)}, {interval_bound(gate)}; required {required(gate)}"
    return _svg(_WIDTH, 34, label, parts, class_=f"bar {gate.verdict.value}")


def _whisker(interval: Interval, at: Scale) -> list[Html]:
    left = _LEFT if interval.low is None else at(interval.low)
    right = _RIGHT if interval.high is None else at(interval.high)
    ends = [at(end) for end in (interval.low, interval.high) if end is not None]
    return [
        el("line", x1=left, x2=max(right, left + 0.5), y1=10, y2=10, class_="interval"),
        *(el("line", x1=x, x2=x, y1=6, y2=14, class_="cap") for x in ends),
    ]


def _informative_end(interval: Interval) -> float:
    """The end of the interval that is shown: the upper one if there is one."""
    return interval.high if interval.high is not None else interval.low or 0.0


def _label(x: float, words: str) -> list[Html]:
    """A text below the axis, kept inside the chart."""
    anchor = "start" if x < 0.3 * _WIDTH else "end" if x > 0.7 * _WIDTH else "middle"
    return [el("text", words, x=x, y=31, text_anchor=anchor)]


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


# ------------------------------------------------------------------------------- operating curves

_CURVE_LABELS: Final = {
    "floor": "share of prompts that truly succeed",
    "zero": "share of prompts that truly fail",
    "rate": "share of prompts that truly succeed",
    "compare": "share of prompts that are truly lost",
    "latency": "share of replies that truly keep the limit",
}


def operating_curve(gate: GateResult) -> Html:
    """The probability to pass over the true rate."""
    points: Sequence[CurvePoint] = sorted(gate.curve, key=lambda p: p.rate)
    low, high = points[0].rate, points[-1].rate
    low = 0.0 if low < 0.2 * high else low
    x, y = linear_scale(low, high, 34.0, 292.0), linear_scale(0.0, 1.0, 104.0, 8.0)
    path = " L".join(f"{x(p.rate):.1f} {y(p.chance):.1f}" for p in points)
    parts = [
        *_chance_grid(y, 34.0, 292.0),
        *(el("text", percent(v), x=x(v), y=118, text_anchor=a) for v, a in ((low, "start"), (high, "end"))),
        el("text", _CURVE_LABELS.get(gate.rule, "true rate"), x=163, y=132, text_anchor="middle"),
        el("path", d=f"M{path}", class_="curve"),
        *(el("circle", cx=x(p.rate), cy=y(p.chance), r=2.5, class_="curve-dot") for p in points),
    ]
    return _svg(
        300, 138, f"chance to pass, by the {_CURVE_LABELS.get(gate.rule, 'true rate')}", parts, class_="plot"
    )


def _chance_grid(y: Scale, left: float, right: float) -> Iterable[Html]:
    for share in (0.0, 0.5, 1.0):
        yield el("line", x1=left, x2=right, y1=y(share), y2=y(share), class_="grid")
        yield el("text", percent(share), x=left - 4, y=y(share) + 3.5, text_anchor="end")


# ---------------------------------------------------------------------------------- distributions


def limit_curves(timings: Sequence[Distribution], limit: float | None, at_least: bool) -> Html:
    """Per arm, the share of replies within each possible limit, and the limit of the policy.

    Curves of times rise and those of rates (`at_least`) fall; higher is better in both.
    """
    reach = [_quantile(timing, 0.97) for timing in timings]
    ticks = axis_ticks(max(*reach, 1.1 * (limit or 0.0)))
    x, y = linear_scale(0.0, ticks[-1], 40.0, 350.0), linear_scale(0.0, 1.0, 150.0, 10.0)
    parts: list[Html] = [*_chance_grid(y, 40.0, 350.0)]
    if limit is not None:
        parts += _limit(x(limit), at_least)
    for tick in ticks:
        unit = f" {timings[0].unit}" if tick == ticks[-1] else ""
        anchor = "end" if unit else "middle"
        parts.append(el("text", plain(tick) + unit, x=x(tick), y=166, text_anchor=anchor))
    for timing in timings:
        who = "candidate" if timing.arm == CANDIDATE else "baseline"
        parts.append(el("path", d=_steps(timing, x, y, ticks[-1], at_least), class_=f"ecdf {who}"))
    label = f"share of replies that keep a limit in {timings[0].unit}: " + "; ".join(map(summary, timings))
    return _svg(360, 172, label, parts, class_="plot")


def _limit(x: float, at_least: bool) -> list[Html]:
    allowed = (x, 350.0) if at_least else (40.0, x)
    return [
        el("rect", x=allowed[0], y=10, width=max(0.0, allowed[1] - allowed[0]), height=140, class_="allowed"),
        el("line", x1=x, x2=x, y1=10, y2=150, class_="limit"),
    ]


def _steps(timing: Distribution, x: Scale, y: Scale, most: float, at_least: bool) -> str:
    """The step function of the points up to `most`; failed requests keep it below 100 %."""
    shown, size = [p for p in timing.points if p <= most], len(timing.points)
    path = f"M{x(0):.1f} {y(1.0 if at_least else 0.0):.1f}"
    for rank, value in enumerate(shown, start=1):
        kept = 1 - rank / size if at_least else rank / size
        path += f"H{x(value):.1f}V{y(kept):.1f}"
    return path + f"H{x(most):.1f}"


def _quantile(timing: Distribution, q: float) -> float:
    """A quantile for the chart: the nearest of the finite points."""
    finite = [p for p in timing.points if math.isfinite(p)] or [0.0]
    return finite[round(q * (len(finite) - 1))]


def summary(timing: Distribution) -> str:
    """One arm in words: its median, the 95th percentile (the 5th of a rate), and the share of failures."""
    slow = is_rate(timing.gate)
    middle, tail = (
        plain(timing.points[round(q * (len(timing.points) - 1))]) for q in (0.5, 0.05 if slow else 0.95)
    )
    never = sum(map(math.isinf, timing.points)) / len(timing.points)
    words = f"{timing.arm}: median {middle}, {'5th' if slow else '95th'} percentile {tail} {timing.unit}, of {timing.n}"
    return words + (f"; {percent(never)} never came" if never else "")


def _svg(width: float, height: float, label: str, parts: Iterable[Html], class_: str) -> Html:
    return el(
        "svg", join(parts), viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, class_=class_
    )
