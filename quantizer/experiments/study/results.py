"""The study's raw results as numbers to compare: results by size, strength and method over all runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gates.stats.binomial import wilson
from quantizer.experiments.study.grid import FIRST_RATES, RATES

MANNERS: Final = frozenset(
    (
        "no leak", "no markdown", "no needless call", "finished", "thought closed", "call", "parallel call",
        "unknown", "greeting", "device_without", "memory_without", "web_without",
    )
)  # fmt: skip
"""Scores that count as manners. All others are knowledge: facts, sums, what a result says, what a follow-up refers
to."""
FACTS: Final = ("fact", "reasoning", "two_step")
CALLS: Final = ("call", "parallel call")
DRAWS: Final = 2000
END: Final = "<!-- to here -->"
"""The end of a generated part of a page."""


@dataclass
class MethodResult:
    """One method on the fine-tunes of one strength.

    kept: for each run, for each case, whether all manners were kept; empty if a file has no single cases. calls,
    facts: right and asked, over the runs. kl, seconds: one value per run. A run is a file: a seed, or that seed
    again with another fine-tune, because a GPU's sums differ from run to run.
    """

    kept: dict[str, list[bool]] = field(default_factory=dict)
    calls: list[int] = field(default_factory=lambda: [0, 0])
    facts: list[int] = field(default_factory=lambda: [0, 0])
    kl: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def manners(self) -> tuple[int, int]:
        """Cases with all manners kept, and all cases, over the runs."""
        return sum(sum(marks) for marks in self.kept.values()), sum(map(len, self.kept.values()))


@dataclass
class StudyTable:
    """All results.

    cells: by size, row and method; a row is a strength, followed by the name of the rates unless they are the
    first. strengths: the rows of each size, thin to strong, as (row, "lr × steps"). runs: the raw content of each
    file, by size. rates: of each row.
    """

    cells: dict[tuple[str, str, str], MethodResult] = field(default_factory=dict)
    strengths: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    rates: dict[str, str] = field(default_factory=dict)

    def cell(self, size: str, strength: str, method: str) -> MethodResult | None:
        return self.cells.get((size, strength, method))

    def runs_of(self, size: str, row: str) -> int:
        """The number of runs of a row: that of the method with most."""
        cells = (cell for (s, name, _), cell in self.cells.items() if (s, name) == (size, row))
        return max((len(cell.seconds) for cell in cells), default=0)


def results_folder(folder: Path, rates: str) -> Path:
    """The folder with the results of some rates."""
    return folder if rates == FIRST_RATES else folder / rates


def row_of(strength: str, rates: str) -> str:
    """The row of a fine-tune at some rates."""
    return strength if rates == FIRST_RATES else f"{strength}, {rates}"


def rates_of(record: dict[str, Any]) -> str:
    """The rates of a raw file; the oldest files do not name them."""
    return str(record.get("rates", FIRST_RATES))


def read(folder: Path) -> StudyTable:
    """Every result in a folder, those of the first rates first."""
    table = StudyTable()
    for rates in RATES:
        for path in sorted(results_folder(folder, rates).glob("*-seed*.json")):
            _add(table, json.loads(path.read_text("utf-8")), path.stem)
    return table


def _add(table: StudyTable, record: dict[str, Any], run: str) -> None:
    size, models = record["size"], record["models"]
    named = models.items() if isinstance(models, dict) else [(model["name"], model) for model in models]
    table.runs.setdefault(size, []).append(record)
    order = table.strengths.setdefault(size, [])
    rates = rates_of(record)
    for strength, model in named:
        name = row_of(strength, rates)
        table.rates[name] = rates
        tick = (name, f"{model['lr']:.0e} × {model['steps']}".replace("e-0", "e-"))
        if tick not in order:
            order.append(tick)
        for method, found in model["methods"].items():
            if "scores" in found:
                cell = table.cells.setdefault((size, name, method), MethodResult())
                _count(cell, run, record["cases"], found)


def _count(cell: MethodResult, run: str, cases: Any, found: dict[str, Any]) -> None:
    for into, names in ((cell.calls, CALLS), (cell.facts, FACTS)):
        for name in names:
            right, asked = found["scores"].get(name, (0, 0))
            into[0], into[1] = into[0] + right, into[1] + asked
    cell.seconds.append(found["seconds"])
    if "kl" in found:
        cell.kl.append(found["kl"])
    if "missed" in found:
        cell.kept[run] = [MANNERS.isdisjoint(found["missed"].get(str(i), ())) for i in range(len(cases))]


def share(right: int, asked: int) -> tuple[float, float, float]:
    """A share and its two-sided 95 % Wilson interval over cases; runs count as more cases."""
    return (right / asked, *wilson(right, asked))


def percent(right: int, asked: int) -> str:
    """A share with its interval, in percent; "" if nothing was asked."""
    if not asked:
        return ""
    value, low, high = (100 * one for one in share(right, asked))
    return f"{value:.1f} ({low:.1f}–{high:.1f})"


def write_between_marks(page: Path, title: str, begin: str, lines: Iterable[str]) -> None:
    """Replace what stands between `begin` and END in a page. A page without marks gets them at its end."""
    text = page.read_text("utf-8") if page.exists() else f"# {title}\n"
    if begin not in text:
        text += f"\n{begin}\n{END}\n"
    before, rest = text.split(begin, 1)
    page.write_text(before + "\n".join([begin, "", *lines, END]) + rest.split(END, 1)[1], "utf-8")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What plain rounding lost (net, as a share of all cases), and how much of it a training brought back (1 is
    all).

    Each with a 95 % interval from a bootstrap over cases; None if nothing was lost.
    """

    lost: tuple[float, float, float]
    back: tuple[float, float, float] | None


def recovered(before: MethodResult, rounded: MethodResult, trained: MethodResult) -> Recovered | None:
    """The recovery from cells with the same runs. The same cases are drawn for all runs and all three cells, as
    they are paired."""
    runs = sorted(before.kept.keys() & rounded.kept.keys() & trained.kept.keys())
    if not runs:
        return None
    count = min(len(before.kept[run]) for run in runs)
    sums = [
        [sum(cell.kept[run][i] for run in runs) for cell in (before, rounded, trained)] for i in range(count)
    ]
    rng, draws = random.Random(1), []
    for _ in range(DRAWS):
        draws.append(_parts([sums[rng.randrange(count)] for _ in range(count)], count * len(runs)))
    lost, back = _parts(sums, count * len(runs))
    whole = (lost, *_middle(sorted(one for one, _ in draws)))
    if back is None:
        return Recovered(whole, None)
    # A draw without a loss has no recovery; it is placed at the far end.
    shares = sorted(one if one is not None else float("inf") for _, one in draws)
    return Recovered(whole, (back, *_middle(shares)))


def _parts(sums: Iterable[Sequence[int]], asked: int) -> tuple[float, float | None]:
    before, rounded, trained = (sum(column) for column in zip(*sums, strict=True))
    lost = before - rounded
    return lost / asked, (trained - rounded) / lost if lost > 0 else None


def _middle(values: list[float]) -> tuple[float, float]:
    return values[int(0.025 * len(values))], values[int(0.975 * len(values))]
