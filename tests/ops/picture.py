"""A dashboard drawn from Prometheus's data, as SVG: where there is no Grafana, and for the README. Pure.

It follows the panels of `deploy.dashboards` as far as a picture needs: places, lines, stacks, heatmaps and
numbers, limits, legends and marks. Colours are told apart by the legend's order as well.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from deploy.dashboards.panel import Dashboard, HeatmapPanel, Panel, StatPanel, TimeSeriesPanel
from gates.report.charts import axis_ticks, linear_scale

Line = tuple[str, list[tuple[float, float]]]
"""A legend, and points of Unix time and value."""
Shown = Mapping[str, Sequence[Line]]
"""By a panel's title."""
Moment = tuple[float, str]
"""Unix time, and what is marked there; its first word is what there is room for."""

COLUMN, ROW, GAP = 50.0, 27.0, 5.0
LEFT, TOP, BOTTOM = 52.0, 38.0, 32.0
COLOURS = ("#2456c7", "#d9730d", "#18794e", "#a33ea1", "#c02a2f", "#0f7b8a", "#8f5f00", "#5d6168")
GOOD, BAD = "#18794e", "#c02a2f"
STYLE = (
    "text{fill:#1b1c1e}.s{font-size:10px;fill:#5d6168}.t{font-size:12px;font-weight:600}"
    ".h{font-size:13px;font-weight:650;fill:#5d6168}.n{font-size:26px;font-weight:650}"
    ".g{stroke:#ececea}.l{fill:none;stroke-width:1.6;stroke-linejoin:round}.d{stroke:#c02a2f;stroke-dasharray:5 4;opacity:.7}"
    ".m{stroke:#8f3bb8;stroke-dasharray:3 2}.p{font-size:9px;fill:#8f3bb8}"
)


def amount(value: float, unit: str) -> str:
    """As a person writes it."""
    if unit == "s":
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit == "percentunit":
        return f"{value:.0%}"
    word = {"reqps": " /s", "cpm": " /min", "tok/s": " tok/s", "short": "", "bytes": ""}[unit]
    return f"{value:.3g}{word}" if value < 1000 else f"{value:,.0f}{word}"


def draw(dashboard: Dashboard, shown: Shown, marked: Sequence[Moment], start: float, end: float) -> str:
    """The whole page, from `start` to `end` in Unix seconds."""
    parts: list[str] = []
    by_title = {panel.title: panel for panel in dashboard.panels()}
    height = 0.0
    for placed in dashboard.json()["panels"]:
        at = placed["gridPos"]
        x, y = at["x"] * COLUMN, at["y"] * ROW + 44
        width, tall = at["w"] * COLUMN - GAP, at["h"] * ROW - GAP
        height = max(height, y + tall)
        if placed["type"] == "row":
            parts.append(f'<text x="{x + 4:.0f}" y="{y + 16:.0f}" class="h">{escape(placed["title"])}</text>')
        else:
            panel = by_title[placed["title"]]
            body = _panel(panel, shown.get(panel.title, ()), width, tall, start, end)
            if not isinstance(panel, StatPanel):
                body += _marks(marked, width, tall, start, end)
            parts.append(f'<g transform="translate({x:.0f} {y:.0f})">{body}</g>')
    wide, tall = 24 * COLUMN + 12, height + 14
    title = f'<text x="4" y="26" font-size="18" font-weight="650">{escape(dashboard.title)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {wide:.0f} {tall:.0f}" width="{wide:.0f}" height="{tall:.0f}" '
        f'font-family="-apple-system,Segoe UI,Helvetica,Arial,sans-serif"><style>{STYLE}</style>'
        f'<rect x="-8" width="{wide:.0f}" height="{tall:.0f}" fill="#f7f7f5"/>{title}\n{chr(10).join(parts)}\n</svg>\n'
    )


def _panel(panel: Panel, lines: Sequence[Line], width: float, height: float, start: float, end: float) -> str:
    card = f'<rect width="{width:.0f}" height="{height:.0f}" rx="6" fill="#fff" stroke="#e2e2de"/>'
    title = f'<text x="10" y="18" class="t">{escape(panel.title)}</text>'
    alive = [(name, [(t, v) for t, v in points if math.isfinite(v)]) for name, points in lines]
    alive = [line for line in alive if line[1]]
    if not alive:
        said = (
            f'<text x="{width / 2:.0f}" y="{height / 2 + 8:.0f}" text-anchor="middle" class="s">none</text>'
        )
        return card + title + said
    if isinstance(panel, StatPanel):
        return card + title + _number(panel, alive, width, height)
    if isinstance(panel, HeatmapPanel):
        return card + title + _heat(alive, width, height, start, end)
    assert isinstance(panel, TimeSeriesPanel), panel
    return card + title + _lines(panel, alive, width, height, start, end)


def _number(panel: StatPanel, lines: Sequence[Line], width: float, height: float) -> str:
    worst = (min if panel.low_is_bad else max)(points[-1][1] for _, points in lines)
    bad = panel.limit is not None and ((worst < panel.limit) if panel.low_is_bad else (worst >= panel.limit))
    colour = BAD if bad else GOOD
    return (
        f'<text x="{width / 2:.0f}" y="{height / 2 + 18:.0f}" text-anchor="middle" class="n" style="fill:{colour}">'
        f"{escape(amount(worst, panel.unit))}</text>"
    )


def _axes(width: float, height: float, ticks: Iterable[tuple[float, str]], start: float, end: float) -> str:
    """Grid lines with their labels, left and below. Ticks are places and words."""
    right, bottom = width - 12, height - BOTTOM - 18
    parts = [
        f'<line x1="{LEFT:.0f}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}" class="g"/>'
        f'<text x="{LEFT - 6:.0f}" y="{y + 3:.1f}" text-anchor="end" class="s">{escape(word)}</text>'
        for y, word in ticks
    ]
    across = linear_scale(start, end, LEFT, right)
    for i in range(1, 4):
        moment = start + (end - start) * i / 4
        word = f"{datetime.fromtimestamp(moment, UTC):%H:%M:%S}"
        parts.append(
            f'<text x="{across(moment):.0f}" y="{bottom + 14:.0f}" text-anchor="middle" class="s">{word}</text>'
        )
    return "".join(parts)


def _marks(marked: Sequence[Moment], width: float, height: float, start: float, end: float) -> str:
    """Across the whole plot, over all else in it."""
    across, bottom = linear_scale(start, end, LEFT, width - 12), height - BOTTOM - 18
    return "".join(
        f'<path d="M{across(moment):.1f} {TOP - 2:.0f}V{bottom:.0f}" class="m"/>'
        f'<text x="{across(moment):.1f}" y="{TOP - 4:.0f}" text-anchor="middle" class="p">{escape(text.split()[0])}</text>'
        for moment, text in marked
    )


def _lines(
    panel: TimeSeriesPanel, lines: Sequence[Line], width: float, height: float, start: float, end: float
) -> str:
    stacked = _stack(lines) if panel.stacked else list(lines)
    most = max(value for _, points in stacked for _, value in points)
    if panel.limit is not None and panel.limit < 4 * most:
        most = max(most, panel.limit * 1.05)
    ticks = axis_ticks(most or 1.0)
    bottom = height - BOTTOM - 18
    across, up = linear_scale(start, end, LEFT, width - 12), linear_scale(0, ticks[-1], bottom, TOP)
    parts = [_axes(width, height, [(up(tick), amount(tick, panel.unit)) for tick in ticks], start, end)]
    for number, (_, points) in reversed(list(enumerate(stacked))):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{across(t):.1f} {up(v):.1f}" for t, v in points)
        if panel.stacked:
            base = f"L{across(points[-1][0]):.1f} {bottom:.1f}L{across(points[0][0]):.1f} {bottom:.1f}Z"
            parts.append(f'<path d="M{path}{base}" fill="{colour}" fill-opacity=".35"/>')
        parts.append(f'<path d="M{path}" class="l" stroke="{colour}"/>')
    if panel.limit is not None and panel.limit <= ticks[-1]:
        y = up(panel.limit)
        parts.append(f'<line x1="{LEFT:.0f}" x2="{width - 12:.0f}" y1="{y:.1f}" y2="{y:.1f}" class="d"/>')
    return "".join(parts) + _legend(
        [(name, points[-1][1]) for name, points in lines], panel.unit, width, height
    )


def _stack(lines: Sequence[Line]) -> list[Line]:
    """Each line on top of those before it."""
    below: dict[float, float] = {}
    found: list[Line] = []
    for name, points in lines:
        for t, v in points:
            below[t] = below.get(t, 0.0) + v
        found.append((name, [(t, below[t]) for t, _ in points]))
    return found


def _legend(names: Sequence[tuple[str, float]], unit: str, width: float, height: float) -> str:
    """Two rows of names, each with its last value; an ellipsis for those that have no room."""
    x, y, parts = 10.0, height - 21, []
    for number, (name, last) in enumerate(names):
        text = f"{name}  {amount(last, unit)}"
        needs = 20 + 5.5 * len(text)
        if x + needs > width - 8 and x > 10:
            if y > height - 15:
                parts.append(f'<text x="{x:.0f}" y="{y:.0f}" class="s">…</text>')
                break
            x, y = 10.0, height - 8
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="{y - 5:.0f}" width="9" height="3" fill="{colour}"/>')
        parts.append(f'<text x="{x + 13:.0f}" y="{y:.0f}" class="s">{escape(text)}</text>')
        x += needs
    return "".join(parts)


def _heat(lines: Sequence[Line], width: float, height: float, start: float, end: float) -> str:
    """Cells of buckets by time, the darker the more; from the first bucket that holds anything to the last."""
    bounds = sorted(lines, key=lambda line: float(line[0]))
    cells: list[dict[float, float]] = []
    before: dict[float, float] = {}
    for _, points in bounds:
        cells.append({t: max(0.0, v - before.get(t, 0.0)) for t, v in points})
        before = dict(points)
    held = [i for i, cell in enumerate(cells) if any(v > 1e-9 for v in cell.values())] or [0]
    first, last = held[0], held[-1]
    bottom, right = height - BOTTOM - 18, width - 12
    across, up = linear_scale(start, end, LEFT, right), linear_scale(first, last + 1, bottom, TOP)
    most = max((v for cell in cells for v in cell.values()), default=1.0) or 1.0
    times = sorted({t for cell in cells for t in cell})
    wide = (right - LEFT) / max(1, len(times) - 1)
    every = max(1, math.ceil((last - first + 1) / 8))
    ticks = [
        (up(i + 1), "∞" if math.isinf(float(bounds[i][0])) else amount(float(bounds[i][0]), "s"))
        for i in range(first, last + 1, every)
    ]
    parts = [_axes(width, height, ticks, start, end)]
    for i in range(first, last + 1):
        for t, v in cells[i].items():
            if v > 1e-9 and across(t) < right:
                x, y, tall = across(t), up(i + 1), up(i) - up(i + 1)
                shade = 0.12 + 0.88 * math.sqrt(v / most)
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{min(wide, right - x):.1f}" height="{tall:.1f}" fill="#2456c7" fill-opacity="{shade:.2f}"/>'
                )
    key = f'<text x="10" y="{height - 14:.0f}" class="s">darker: more replies; at most {most:.0f} in a cell</text>'
    return "".join(parts) + key
