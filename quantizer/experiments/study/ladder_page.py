"""Write the ladder's page and picture: `python -m quantizer.experiments.study ladder-report docs/study`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from quantizer.experiments.study.grid import BASE
from quantizer.experiments.study.ladder import LADDER
from quantizer.experiments.study.plot import (
    ChartAxis,
    ScatterPoint,
    ScatterSeries,
    picture,
    scatter,
)
from quantizer.experiments.study.results import percent, share, write_between_marks
from quantizer.experiments.study.survival import (
    SurvivalCell,
    counts_of,
    fit,
    held_out_error,
    read_cells,
)
from quantizer.experiments.study.thin import THIN, Interval, thin
from quantizer.verify.prediction import Prediction

PAGE, RAW = "ladder.md", "ladder.tar.xz"
BEGIN: Final = "<!-- made by python -m quantizer.experiments.study ladder-report -->"
PLAIN: Final = "default"
POWERS: Final = (-3, 1)
HELD_OUT_SEED: Final = 3
WHAT: Final = {"manners": "manners", "facts": "knowledge"}


def write(folder: Path) -> None:
    """Write ladder.md between its marks, and ladder.svg, from the raw results in ladder.tar.xz."""
    cells = read_cells(folder / RAW, folder)
    write_between_marks(folder / PAGE, "The ladder", BEGIN, made(cells))
    (folder / "ladder.svg").write_text(plot(cells), "utf-8")


def made(cells: Sequence[SurvivalCell]) -> Iterator[str]:
    """The text between the marks, line by line."""
    ladder = [cell for cell in cells if cell.source.startswith("ladder/")]
    yield from _together(ladder)
    for size in LADDER.sizes:
        mine = [cell for cell in ladder if cell.size == size]
        if mine:
            seeds = sorted({cell.seed for cell in mine})
            yield f"## {size}: {mine[0].weights / 1e6:.1f} million weights in NVFP4, seeds {', '.join(map(str, seeds))}"
            yield ""
            yield "Manners that survived, %, of the cases in which the fine-tune kept all, and Wilson's interval of 95 %:"
            yield ""
            yield from _matrix(mine, lambda group: percent(*_summed(group, "manners")))
            yield "Facts that survived, %, of those that the fine-tune knew:"
            yield ""
            yield from _matrix(mine, lambda group: percent(*_summed(group, "facts")))
            yield "Lost manners, net, in points of the cases that the fine-tune kept (what was gained elsewhere is subtracted):"
            yield ""
            yield from _matrix(mine, _net)
            yield "Divergence from the fine-tune's BF16, nats a token of Annie's conversations:"
            yield ""
            yield from _matrix(mine, lambda group: f"{_mean(group, 'kl'):.4f}")
            yield "Share of the change that survives, by cross entropy, %: least and most of the seeds"
            yield ""
            yield from _matrix(mine, partial(_by_ce, cells=mine))
    yield from _prediction(cells)


def _together(ladder: Sequence[SurvivalCell]) -> Iterator[str]:
    yield f"## Thin fine-tunes together: {', '.join(f'`{name}`' for name in THIN)}"
    yield ""
    yield f"`{PLAIN}`, over seeds and fine-tunes; intervals of 95 % by a bootstrap over cases. Net: manners lost less manners gained, in points of all cases."
    yield ""
    yield "| | cells | manners, % | knowledge, % | knowledge less manners, points | net loss, points |"
    yield "|---|---|---|---|---|---|"
    for size in LADDER.sizes:
        mine = [
            cell for cell in ladder if (cell.size, cell.method) == (size, PLAIN) and cell.strength in THIN
        ]
        if mine:
            found = thin(mine)
            shares = " | ".join(
                _interval(one) for one in (found.manners, found.facts, found.apart, found.lost)
            )
            yield f"| {size} | {len(mine)} | {shares} |"
    yield ""


def _interval(found: Interval) -> str:
    value, low, high = (100 * one for one in found)
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def _matrix(cells: Sequence[SurvivalCell], said: Callable[[list[SurvivalCell]], str]) -> Iterator[str]:
    methods = [m for m in (*LADDER.first, *LADDER.rest) if any(cell.method == m for cell in cells)]
    yield f"| fine-tune | change over step | {' | '.join(methods)} |"
    yield f"|---|---|{'---|' * len(methods)}"
    for name in _in_order(cells):
        row = [cell for cell in cells if cell.strength == name]
        ratio = sum(cell.ratio for cell in row) / len(row)
        texts = []
        for method in methods:
            group = [cell for cell in row if cell.method == method]
            texts.append(said(group) if group else "")
        yield f"| {name} | {ratio:.3g} | {' | '.join(texts)} |"
    yield ""


def _in_order(cells: Sequence[SurvivalCell]) -> list[str]:
    """Fine-tunes from thin to strong."""
    ratios = {cell.strength: cell.ratio for cell in cells}
    return sorted(ratios, key=lambda name: ratios[name])


def _summed(group: Sequence[SurvivalCell], what: str) -> tuple[int, int]:
    pairs = [getattr(cell, what) for cell in group]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _net(group: Sequence[SurvivalCell]) -> str:
    survived, asked = _summed(group, "manners")
    gained = sum(cell.gained for cell in group)
    return f"{100 * (asked - survived - gained) / asked:.1f}" if asked else ""


def _mean(group: Sequence[SurvivalCell], key: str) -> float:
    return sum(cell.record[key] for cell in group) / len(group)


def _by_ce(group: Sequence[SurvivalCell], cells: Sequence[SurvivalCell]) -> str:
    """What is left of the fine-tune's effect after base and fine-tune were treated alike."""
    at = {(cell.seed, cell.strength, cell.method): cell.record["ce"] for cell in cells}
    found = []
    for cell in group:
        keys = [(cell.seed, name, m) for m in ("bf16", cell.method) for name in (BASE, cell.strength)]
        if cell.strength != BASE and all(key in at for key in keys):
            before, tuned, rounded_before, rounded = (at[key] for key in keys)
            if before == tuned:
                continue
            found.append((rounded_before - rounded) / (before - tuned))
    return f"{100 * min(found):.0f} to {100 * max(found):.0f}" if found else ""


# --------------------------------------------------------------------------------------- the prediction


def fits(cells: Sequence[SurvivalCell]) -> dict[str, Prediction]:
    """The prediction of manners and of knowledge, fitted on every cell of plain rounding."""
    plain = [cell for cell in cells if cell.method == PLAIN and cell.ratio > 0]
    return {what: fit(counts) for what in WHAT if (counts := counts_of(plain, what))}


def _prediction(cells: Sequence[SurvivalCell]) -> Iterator[str]:
    plain = [cell for cell in cells if cell.method == PLAIN and cell.ratio > 0]
    yield "## The prediction"
    yield ""
    yield f"Of `{PLAIN}`, from the ratio of the change to the step and the number of weights. Points; constant: what the"
    yield "training cells survived together, said of every cell."
    yield ""
    yield "| of | fitted on | tested on | cells | mean error | largest | constant |"
    yield "|---|---|---|---|---|---|---|"
    for what, word in WHAT.items():
        for name, inside in _splits():
            trained = [cell for cell in plain if inside(cell)]
            held_out = [cell for cell in plain if not inside(cell)]
            if (counts := counts_of(trained, what)) and counts_of(held_out, what):
                found = held_out_error(fit(counts), trained, held_out, what)
                yield (
                    f"| {word} | {len(trained)} cells | {name} | {found.cells} | {found.mean:.1f} |"
                    f" {found.largest:.1f} | {found.constant:.1f} |"
                )
    yield ""
    for what, one in fits(cells).items():
        yield (
            f"{WHAT[what].capitalize()}, all cells: log odds = {one.intercept:g} + {one.by_ratio:g} log10(ratio)"
            f" + {one.by_weights:g} log10(million weights)."
        )
    yield ""


def _splits() -> Iterator[tuple[str, Callable[[SurvivalCell], bool]]]:
    yield f"seed {HELD_OUT_SEED}, the same sizes", lambda cell: cell.seed != HELD_OUT_SEED
    for size in LADDER.sizes:
        yield f"{size}", lambda cell, size=size: cell.size != size  # type: ignore[misc]  # bound now


def plot(cells: Sequence[SurvivalCell]) -> str:
    """Survival over the ratio, a chart for each size, with the prediction drawn over it."""
    found = fits(cells)
    charts: list[str] = []
    for size in LADDER.sizes:
        mine = [cell for cell in cells if cell.size == size and cell.ratio > 0]
        if not mine:
            continue
        curves = {
            what: [
                (10 ** (i / 10), one(10 ** (i / 10), mine[0].weights))
                for i in range(10 * POWERS[0], 10 * POWERS[1] + 1)
            ]
            for what, one in found.items()
        }
        series = [
            ScatterSeries("manners", _points(mine, "manners", PLAIN), curves.get("manners", ()), 1),
            ScatterSeries("knowledge", _points(mine, "facts", PLAIN), curves.get("facts", ()), 2),
            ScatterSeries("weights alone", _points(mine, "manners", f"{PLAIN}-w"), (), 5),
            ScatterSeries("delta", _points(mine, "manners", "delta"), (), 3),
        ]
        charts.append(
            scatter(
                f"{size}: what survived; dashed: predicted",
                series,
                POWERS,
                ChartAxis(0.7, 1.0, 0.05),
            )
        )
    return picture(charts)


def _points(cells: Sequence[SurvivalCell], what: str, method: str) -> list[ScatterPoint]:
    """One for each fine-tune of each source, over its seeds."""
    groups: dict[tuple[str, bool], list[SurvivalCell]] = {}
    for cell in cells:
        if cell.method == method:
            groups.setdefault((cell.strength, cell.source.startswith("ladder/")), []).append(cell)
    found = []
    for group in groups.values():
        pair = _summed(group, what)
        if pair[1]:
            ratio = sum(cell.ratio for cell in group) / len(group)
            found.append(ScatterPoint(ratio, *share(*pair)))
    return found
