"""A line chart as SVG, written by hand: a dependency less, and a text that a diff can show. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 520, 320, 56, 40, 130, 64
COLOURS: Final = (
    "#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#7a4fbf", "#a0522d",
)  # fmt: skip
"""Okabe and Ito's, which colour-blind readers can tell apart, and three more."""


@dataclass(frozen=True, slots=True)
class Line:
    """points: at each tick (value, low, high), shares of one; None where there is none."""

    name: str
    points: Sequence[tuple[float, float, float] | None]


def chart(title: str, ticks: Sequence[str], lines: Sequence[Line], left: int = 0) -> str:
    """One chart as a group of SVG elements, so many pixels from the left."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(tick: int, line: int) -> float:
        return LEFT + width * (tick + 0.5) / len(ticks) + 3 * (line - (len(lines) - 1) / 2)

    def down(share: float) -> float:
        return TOP + height * (1 - share)

    parts = [f'<g transform="translate({left} 0)">', _text(LEFT, 20, title, "start", 14)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = down(share)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + width}" y2="{y:.1f}" stroke="#e0e0e0"/>'
            + _text(LEFT - 6, y + 4, f"{share:.0%}", "end")
        )
    parts += [
        _text(across(i, 0), TOP + height + 18 + 14 * (i % 2), tick, "middle") for i, tick in enumerate(ticks)
    ]
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        known = [(i, point) for i, point in enumerate(line.points) if point]
        path = " ".join(f"{across(i, number):.1f},{down(point[0]):.1f}" for i, point in known)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for i, (value, low, high) in known:
            x = across(i, number)
            parts.append(
                f'<line x1="{x:.1f}" y1="{down(low):.1f}" x2="{x:.1f}" y2="{down(high):.1f}" stroke="{colour}"/>'
                f'<circle cx="{x:.1f}" cy="{down(value):.1f}" r="2.5" fill="{colour}"/>'
            )
        parts.append(_text(LEFT + width + 10, TOP + 12 + 17 * number, line.name, "start", 12, colour))
    return "\n".join([*parts, "</g>"])


def picture(charts: Sequence[str], columns: int = 2) -> str:
    """Charts side by side as a whole SVG file; each made with `left` as its place wants."""
    width = WIDTH * min(columns, max(1, len(charts)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}" '
        f'font-family="sans-serif">\n<rect width="{width}" height="{HEIGHT}" fill="#ffffff"/>\n'
        + "\n".join(charts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str, size: int = 11, colour: str = "#333333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
        f"{escape(text)}</text>"
    )
