"""Write the study's pages from its raw results: tables between two marks in README.md, and two plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Final

from quantizer.experiments.study.grid import FIRST_RATES, METHODS, RATES
from quantizer.experiments.study.plot import ChartAxis, ChartLine, chart, picture
from quantizer.experiments.study.results import (
    MethodResult,
    Recovered,
    StudyTable,
    percent,
    rates_of,
    read,
    recovered,
    row_of,
    share,
    write_between_marks,
)

BEGIN: Final = "<!-- made by python -m quantizer.experiments.study report -->"
PLOTTED: Final = ("bf16", "default", "mlp_only", "qat", "qad", "q4_k_m")
TRAINED: Final = ("qad", "qat", "lsq")
ENOUGH: Final = 0.9
"""The share of the loss from plain rounding that a recovery should bring back."""
CAME_BACK: Final = ChartAxis(-0.5, 2.0, 0.5, ENOUGH)


def write(folder: Path) -> None:
    """Write all three files."""
    table = read(folder)
    write_between_marks(folder / "README.md", "Where FP4 eats manners", BEGIN, made(table))
    (folder / "manners.svg").write_text(plot(table), encoding="utf-8")
    (folder / "recovered.svg").write_text(plot_recovered(table), encoding="utf-8")


def made(table: StudyTable) -> Iterator[str]:
    """The text between the marks, line by line."""
    for size, runs in table.runs.items():
        seeds = ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs}))
        devices = " and ".join(dict.fromkeys(run["device"] for run in runs))
        asked = {len(run["cases"]) if isinstance(run["cases"], list) else run["cases"] for run in runs}
        yield f"## {size}: seeds {seeds}; {' and '.join(map(str, sorted(asked)))} cases; {devices}"
        yield ""
        yield from _rates(table, size)
        if any(cell.kept for key, cell in table.cells.items() if key[0] == size):
            yield "Cases in which all manners were kept, %, and Wilson's interval of 95 % over cases of all runs:"
            yield ""
            yield from _matrix(table, size, lambda cell: percent(*cell.manners))
        yield "Tool calls that are exactly right, %:"
        yield ""
        yield from _matrix(table, size, lambda cell: _plain_percent(*cell.calls))
        yield "Knowledge (facts and sums), %:"
        yield ""
        yield from _matrix(table, size, lambda cell: _plain_percent(*cell.facts))
        if any(cell.kl for key, cell in table.cells.items() if key[0] == size):
            yield "Divergence from the fine-tune's own BF16 on held-out conversations, nats per token:"
            yield ""
            yield from _matrix(table, size, lambda cell: f"{mean(cell.kl):.4f}" if cell.kl else "")
        yield "Seconds a model, of the median run, beside other runs on the same device:"
        yield ""
        yield from _matrix(table, size, lambda cell: f"{median(cell.seconds):.1f}")
        yield from _recoveries(table, size)


def _rates(table: StudyTable, size: str) -> Iterator[str]:
    """Explain the rows with other rates than the first."""
    for rates, record in {rates_of(run): run for run in table.runs[size]}.items():
        if rates != FIRST_RATES:
            peaks = ", ".join(f"{m.upper()} {one['lr']:.0e}" for m, one in record["recovery"].items())
            floor, grid = next(iter(record["recovery"].values()))["floor"], record["grid"]
            yield (
                f"Rows with “{rates}”: recovery of {grid['recovery_steps']:,} steps on {grid['recovery']:,} conversations,"
            )
            yield (
                f"at peak rates of {peaks}".replace("e-0", "e-")
                + f" that fall to {floor:g} of it. Their losses"
            )
            yield "are those of their own fine-tunes, of the same seeds."
            yield from _counts(table, size, rates)
            yield ""


def _counts(table: StudyTable, size: str, rates: str) -> Iterator[str]:
    """The number of runs of each row, if not all have the same."""
    found: dict[int, list[str]] = {}
    for name, _ in table.strengths[size]:
        if table.rates[name] == rates:
            found.setdefault(table.runs_of(size, name), []).append(name.partition(",")[0])
    if len(found) > 1:
        yield "Runs: " + "; ".join(f"{count} of {', '.join(names)}" for count, names in found.items()) + "."


def plot(table: StudyTable) -> str:
    """Manners by strength, one chart per size; tool calls where a file has no single cases."""
    charts: list[str] = []
    for size, strengths in table.strengths.items():
        whole = any(cell.kept for key, cell in table.cells.items() if key[0] == size)
        lines = []
        strengths = [one for one in strengths if table.rates[one[0]] == rates_of(table.runs[size][0])]
        for colour, method in enumerate(PLOTTED):
            cells = [table.cell(size, name, method) for name, _ in strengths]
            pairs = [(cell.manners if whole else cell.calls) if cell else (0, 0) for cell in cells]
            points = [share(right, asked) if asked else None for right, asked in pairs]
            if any(points):
                lines.append(ChartLine(method, points, colour))
        title = f"{size}: {'cases with all manners kept' if whole else 'tool calls exactly right'}"
        charts.append(chart(title, [tick for _, tick in strengths], lines))
    return picture(charts)


def plot_recovered(table: StudyTable) -> str:
    """The recovered share of the loss from rounding, by strength: one chart per size and method, one line per
    rates.

    There is no point where the loss is within noise. The axis ends at -50 and 200 %.
    """
    charts: list[str] = []
    for size, strengths in table.strengths.items():
        firsts = [one for one in strengths if table.rates[one[0]] == rates_of(table.runs[size][0])]
        for method in TRAINED:
            lines = []
            for colour, rates in enumerate(RATES, 1):
                points = [_point(table, size, row_of(name, rates), method) for name, _ in firsts]
                if any(points):
                    lines.append(ChartLine(rates, points, colour))
            if lines:
                title, ticks = f"{size}, {method}: manners that came back", [tick for _, tick in firsts]
                charts.append(chart(title, ticks, lines, CAME_BACK))
    return picture(charts)


def _point(table: StudyTable, size: str, row: str, method: str) -> tuple[float, float, float] | None:
    before, rounded, trained = (table.cell(size, row, name) for name in ("bf16", "default", method))
    if before is None or rounded is None or trained is None:
        return None
    found = recovered(before, rounded, trained)
    return None if found is None or found.lost[1] <= 0 else found.back


def _matrix(table: StudyTable, size: str, value_of: object) -> Iterator[str]:
    """A table with a row for each strength and a column for each method."""
    assert callable(value_of)
    known = [m for m in METHODS if any(key[0] == size and key[2] == m for key in table.cells)]
    yield f"| fine-tune | {' | '.join(known)} |"
    yield f"|---|{'---|' * len(known)}"
    for name, tick in table.strengths[size]:
        cells = [table.cell(size, name, method) for method in known]
        record = [
            _cell_text(value_of(cell), cell, table.runs_of(size, name)) if cell else "" for cell in cells
        ]
        yield f"| {name}, {tick} | {' | '.join(record)} |"
    yield ""


def _cell_text(text: str, cell: MethodResult | None, runs: int) -> str:
    """The text of a cell, with a note if the cell has fewer runs than its row."""
    have = len(cell.seconds) if cell else 0
    return f"{text} [{have} of {runs} runs]" if text and have < runs else text


def _plain_percent(right: int, asked: int) -> str:
    return f"{100 * right / asked:.1f}" if asked else ""


def _recoveries(table: StudyTable, size: str) -> Iterator[str]:
    """What plain rounding lost, and how much of it each training brought back."""
    rows = []
    for name, tick in table.strengths[size]:
        before, rounded = (table.cell(size, name, method) for method in ("bf16", "default"))
        trained = {method: table.cell(size, name, method) for method in TRAINED}
        if before and rounded and any(trained.values()):
            found = {m: recovered(before, rounded, cell) for m, cell in trained.items() if cell}
            runs = table.runs_of(size, name)
            record = [
                _cell_text(_back(one), trained[m], runs) if (one := found.get(m)) else "" for m in TRAINED
            ]
            lost = next((one.lost for one in found.values() if one), None)
            if lost:
                rows.append(f"| {name}, {tick} | {_points(lost)} | {' | '.join(record)} |")
    if not rows:
        return
    yield f"Lost by plain rounding (points of all cases), and how much of it came back; the aim is {ENOUGH:.0%}. Intervals"
    yield "of 95 % from a bootstrap over cases:"
    yield ""
    yield f"| fine-tune | lost | {' | '.join(TRAINED)} |"
    yield f"|---|---|{'---|' * len(TRAINED)}"
    yield from rows
    yield ""


def _points(record: tuple[float, float, float]) -> str:
    value, low, high = (100 * one for one in record)
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def _back(found: Recovered) -> str:
    """A recovered share; none is given if the loss is within noise."""
    if found.back is None or found.lost[1] <= 0:
        return "no loss beyond noise"
    value, low, high = found.back
    mark = "**" if value >= ENOUGH else ""
    top = "…" if high == float("inf") else f"{high:.0%}"
    return f"{mark}{value:.0%}{mark} ({low:.0%} to {top})"
