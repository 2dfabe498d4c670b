"""The drawings of the page, as inline SVG: intervals against limits, curves, distributions. Pure.

Colours come from the page's style sheet by class, so that a drawing follows light, dark and print.
A verdict or an arm is never told by colour alone: shape, dash or word says it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gates.contracts.verdict import GateResult, Interval, Pass
from gates.judge.words import percent
from gates.report.html import Html, el, join
from gates.report.statement import CANDIDATE, Distribution
from gates.report.words import amount, bound, is_rate, measured, plain, required, rises

Scale = Callable[[float], float]

# A bar's drawing, in its own units: its width, and where its line begins and ends.
_WIDTH, _LEFT, _RIGHT = 240.0, 6.0, 234.0


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """A linear map of [low, high] to [start, end]; what lies outside stays at the edge."""
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * min(1.0, max(0.0, (value - low) / span))


def nice(most: float, parts: int = 4) -> list[float]:
    """IOBatch numbers from 0 to about `most`, some `parts` steps of 1, 2 or 5 times a power of ten."""
    if most <= 0 or not math.isfinite(most):
        return [0.0, 1.0]
    rough = most / parts
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    return [i * step for i in range(math.ceil(most / step) + 1)]


# ------------------------------------------------------------------------------------- one gate


def verdict_bar(gate: GateResult) -> Html | None:
    """The drawing of one rule: pips for named prompts, an interval against its limit for the others."""
    if gate.rule == "floor":
        return pips(gate)
    return None if gate.interval is None or gate.limit is None else interval_bar(gate)


def pips(gate: GateResult) -> Html | None:
    """A mark for each named prompt, the bad ones last and crossed. None for more than 100."""
    if not 0 < gate.n <= 100:
        return None
    size = min(14.0, _WIDTH / min(gate.n, 25))
    marks = [_pip(i, i >= gate.n - gate.bad, size) for i in range(gate.n)]
    height = size * math.ceil(gate.n / 25)
    return _svg(_WIDTH, height, f"{gate.n - gate.bad} of {gate.n} named prompts", marks, class_="bar pips")


def _pip(number: int, bad: bool, size: float) -> Html:
    row, column = divmod(number, 25)
    x, y, inner = column * size, row * size, size - 3
    if not bad:
        return el("rect", x=x, y=y, width=inner, height=inner, rx=2, class_="pip")
    cross = f"M{x:.1f} {y:.1f}l{inner:.1f} {inner:.1f}m0 {-inner:.1f}l{-inner:.1f} {inner:.1f}"
    return el("path", d=cross, class_="pip-bad")


def interval_bar(gate: GateResult) -> Html:
    """Estimate and interval on a line, the allowed side of the limit shaded, the limit named.

    Where none may fail, no share of failures is allowed, so no side is shaded: the interval says
    what cannot be excluded. A side without a bound runs to the end of the line.
    """
    assert gate.interval is not None and gate.limit is not None
    at = scale(*_domain(gate), _LEFT, _RIGHT)
    limit, word = at(gate.limit), f"{'≥' if rises(gate) else '≤'} {amount(gate.limit, gate)}"
    allowed = (limit, _RIGHT) if rises(gate) else (_LEFT, limit)
    parts = [el("line", x1=_LEFT, x2=_RIGHT, y1=10, y2=10, class_="axis")]
    if gate.rule == "zero":
        parts += _label(at(_told(gate.interval)), bound(gate))
    else:
        parts.append(
            el("rect", x=allowed[0], y=1, width=allowed[1] - allowed[0], height=18, class_="allowed")
        )
        parts.append(el("line", x1=limit, x2=limit, y1=0, y2=20, class_="limit"))
        parts += _label(limit, word)
    parts += _whisker(gate.interval, at)
    if gate.estimate is not None:
        parts.append(el("circle", cx=at(gate.estimate), cy=10, r=4, class_="dot"))
    label = f"measured {measured(gate)}, {bound(gate)}; required {required(gate)}"
    return _svg(_WIDTH, 34, label, parts, class_=f"bar {gate.verdict.value}")


def _whisker(interval: Interval, at: Scale) -> list[Html]:
    left = _LEFT if interval.low is None else at(interval.low)
    right = _RIGHT if interval.high is None else at(interval.high)
    ends = [at(end) for end in (interval.low, interval.high) if end is not None]
    return [
        el("line", x1=left, x2=max(right, left + 0.5), y1=10, y2=10, class_="interval"),
        *(el("line", x1=x, x2=x, y1=6, y2=14, class_="cap") for x in ends),
    ]


def _told(interval: Interval) -> float:
    """The end that says something: the upper one, if there is one."""
    return interval.high if interval.high is not None else interval.low or 0.0


def _label(x: float, words: str) -> list[Html]:
    """Words below the line, inside the drawing."""
    anchor = "start" if x < 0.3 * _WIDTH else "end" if x > 0.7 * _WIDTH else "middle"
    return [el("text", words, x=x, y=31, text_anchor=anchor)]


def _domain(gate: GateResult) -> tuple[float, float]:
    """What the line spans: all of it for shares of success, as much as is needed for the others."""
    assert gate.interval is not None
    if gate.rule == "rate":
        return 0.0, 1.0
    found = (gate.limit, gate.estimate, gate.interval.low, gate.interval.high)
    reach = 1.25 * max(abs(v) for v in found if v is not None and math.isfinite(v))
    if gate.rule in ("compare", "ratio"):
        return -reach, reach
    return 0.0, max(reach, 0.05) if gate.rule == "zero" else reach


# ------------------------------------------------------------------------------- operating curves

_CURVES: Final = {
    "floor": "share of prompts that truly succeed",
    "zero": "share of prompts that truly fail",
    "rate": "share of prompts that truly succeed",
    "compare": "share of prompts that are truly lost",
    "latency": "share of replies that truly keep the limit",
}


def operating_curve(gate: GateResult) -> Html:
    """The chance to pass over the true rate: what the rule would let through."""
    points: Sequence[Pass] = sorted(gate.curve, key=lambda p: p.rate)
    low, high = points[0].rate, points[-1].rate
    low = 0.0 if low < 0.2 * high else low
    x, y = scale(low, high, 34.0, 292.0), scale(0.0, 1.0, 104.0, 8.0)
    path = " L".join(f"{x(p.rate):.1f} {y(p.chance):.1f}" for p in points)
    parts = [
        *_chance_grid(y, 34.0, 292.0),
        *(el("text", percent(v), x=x(v), y=118, text_anchor=a) for v, a in ((low, "start"), (high, "end"))),
        el("text", _CURVES.get(gate.rule, "true rate"), x=163, y=132, text_anchor="middle"),
        el("path", d=f"M{path}", class_="curve"),
        *(el("circle", cx=x(p.rate), cy=y(p.chance), r=2.5, class_="curve-dot") for p in points),
    ]
    return _svg(
        300, 138, f"chance to pass, by the {_CURVES.get(gate.rule, 'true rate')}", parts, class_="plot"
    )


def _chance_grid(y: Scale, left: float, right: float) -> Iterable[Html]:
    for share in (0.0, 0.5, 1.0):
        yield el("line", x1=left, x2=right, y1=y(share), y2=y(share), class_="grid")
        yield el("text", percent(share), x=left - 4, y=y(share) + 3.5, text_anchor="end")


# ---------------------------------------------------------------------------------- distributions


def kept_limits(timings: Sequence[Distribution], limit: float | None, at_least: bool) -> Html:
    """Per arm, the share of replies that would keep each limit there could be; and the limit there is.

    So a curve of times rises, one of speeds (`at_least`) falls, and higher is better in both.
    """
    reach = [_quantile(timing, 0.97) for timing in timings]
    ticks = nice(max(*reach, 1.1 * (limit or 0.0)))
    x, y = scale(0.0, ticks[-1], 40.0, 350.0), scale(0.0, 1.0, 150.0, 10.0)
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
    """The staircase of the points up to `most`; times that never came leave it below 100 %."""
    shown, size = [p for p in timing.points if p <= most], len(timing.points)
    path = f"M{x(0):.1f} {y(1.0 if at_least else 0.0):.1f}"
    for rank, value in enumerate(shown, start=1):
        kept = 1 - rank / size if at_least else rank / size
        path += f"H{x(value):.1f}V{y(kept):.1f}"
    return path + f"H{x(most):.1f}"


def _quantile(timing: Distribution, q: float) -> float:
    """A quantile for the picture: the nearest of the finite points."""
    finite = [p for p in timing.points if math.isfinite(p)] or [0.0]
    return finite[round(q * (len(finite) - 1))]


def summary(timing: Distribution) -> str:
    """One arm in words: its median, the value that 95 % keep, and how much never came."""
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
