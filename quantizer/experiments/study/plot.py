"""Line charts as SVG, without a plotting library; the text format can be compared in a diff."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 520, 320, 56, 40, 130, 64
COLOURS: Final = (
    "#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#7a4fbf", "#a0522d",
)  # fmt: skip
"""The palette of Okabe and Ito for colour-blind readers, and three more colours."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """points: (value, low, high) at each tick, as shares of one; None where there is none. colour: index in
    COLOURS, so that a line has the same one in every chart."""

    name: str
    points: Sequence[tuple[float, float, float] | None]
    colour: int


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """The vertical axis: shares of one, a grid line at every step, a darker one at the aim. Values beyond are drawn
    at the end."""

    low: float
    high: float
    step: float
    aim: float | None = None


def chart(title: str, ticks: Sequence[str], lines: Sequence[ChartLine], span: ChartAxis | None = None) -> str:
    """One chart as SVG elements.

    Without a span, the axis ranges from below the lowest interval to 100 % in steps of 10 %.
    """
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    lows = [point[1] for line in lines for point in line.points if point]
    span = span or ChartAxis(min(0.9, math.floor(10 * min(lows, default=0.0)) / 10), 1.0, 0.1)

    def across(tick: int, line: int) -> float:
        return LEFT + width * (tick + 0.5) / len(ticks) + 3 * (line - (len(lines) - 1) / 2)

    def down(share: float) -> float:
        kept = min(max(share, span.low), span.high)
        return TOP + height * (span.high - kept) / (span.high - span.low)

    parts = [_text(LEFT, 20, title, "start", 14)]
    rules = [span.low + i * span.step for i in range(round((span.high - span.low) / span.step) + 1)]
    for share in rules:
        parts += [
            _rule(width, down(share), "#e0e0e0"),
            _text(LEFT - 6, down(share) + 4, f"{share:.0%}", "end"),
        ]
    if span.aim is not None:
        y = down(span.aim)
        parts += [
            _rule(width, y, "#888888"),
            _text(LEFT + width + 10, y + 4, f"the aim, {span.aim:.0%}", "start"),
        ]
    for i, tick in enumerate(ticks):
        at = LEFT + width * (i + 0.5) / len(ticks)
        parts.append(_text(at, TOP + height + 18 + 14 * (i % 2), tick, "middle"))
    for number, line in enumerate(lines):
        parts += _drawn(line, [across(i, number) for i in range(len(ticks))], down)
        colour = COLOURS[line.colour % len(COLOURS)]
        parts.append(_text(LEFT + width + 10, TOP + 12 + 17 * number, line.name, "start", 12, colour))
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """x: positive. value, low, high: shares of one."""

    x: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ScatterSeries:
    """Points, and a curve: shares at some x, both may be empty. colour: index in COLOURS."""

    name: str
    points: Sequence[ScatterPoint]
    curve: Sequence[tuple[float, float]]
    colour: int


def scatter(title: str, series: Sequence[ScatterSeries], powers: tuple[int, int], span: ChartAxis) -> str:
    """A chart over a logarithmic axis, from and to these powers of ten."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(x: float) -> float:
        place = (math.log10(x) - powers[0]) / (powers[1] - powers[0])
        return LEFT + width * min(max(place, 0.0), 1.0)

    def down(share: float) -> float:
        kept = min(max(share, span.low), span.high)
        return TOP + height * (span.high - kept) / (span.high - span.low)

    parts = [_text(LEFT, 20, title, "start", 14)]
    for i in range(round((span.high - span.low) / span.step) + 1):
        y = down(span.low + i * span.step)
        parts += [
            _rule(width, y, "#e0e0e0"),
            _text(LEFT - 6, y + 4, f"{span.low + i * span.step:.0%}", "end"),
        ]
    for power in range(powers[0], powers[1] + 1):
        parts.append(_text(across(10.0**power), TOP + height + 18, f"{10.0**power:g}", "middle"))
    parts.append(_text(LEFT + width / 2, TOP + height + 36, "change over step", "middle"))
    for number, one in enumerate(series):
        colour = COLOURS[one.colour % len(COLOURS)]
        line = " ".join(f"{across(x):.1f},{down(share):.1f}" for x, share in one.curve)
        if line:
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-dasharray="5 3"/>')
        for point in one.points:
            x = across(point.x) + 2 * (number - (len(series) - 1) / 2)
            parts.append(_dot(x, down(point.value), down(point.low), down(point.high), colour))
        parts.append(_text(LEFT + width + 10, TOP + 12 + 17 * number, one.name, "start", 12, colour))
    return "\n".join(parts)


def _dot(x: float, value: float, low: float, high: float, colour: str) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        f'<circle cx="{x:.1f}" cy="{value:.1f}" r="2.5" fill="{colour}"/>'
    )


def _drawn(line: ChartLine, across: Sequence[float], down: Callable[[float], float]) -> list[str]:
    """A line with its intervals, interrupted where a point is missing."""
    colour, parts, run = COLOURS[line.colour % len(COLOURS)], [], ""
    for x, point in [*zip(across, line.points, strict=True), (0.0, None)]:
        if point is None:
            if run:
                parts.append(f'<polyline points="{run}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            run = ""
            continue
        value, low, high = map(down, point)
        run += f"{' ' if run else ''}{x:.1f},{value:.1f}"
        parts.append(_dot(x, value, low, high, colour))
    return parts


def picture(charts: Sequence[str], columns: int = 2) -> str:
    """Charts in rows of so many columns, as a complete SVG file."""
    width = WIDTH * max(1, min(columns, len(charts)))
    height = HEIGHT * max(1, math.ceil(len(charts) / columns))
    placed = (
        f'<g transform="translate({WIDTH * (i % columns)} {HEIGHT * (i // columns)})">\n{one}\n</g>'
        for i, one in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif">\n<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
        + "\n".join(placed)
        + "\n</svg>\n"
    )


def _rule(width: float, y: float, colour: str) -> str:
    return f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + width}" y2="{y:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str, size: int = 11, colour: str = "#333333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
        f"{escape(text)}</text>"
    )
