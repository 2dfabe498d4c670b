"""From samples to figures, as a page for people and as JSON for scripts.

Rounds differ more from each other than subjects do within one, so differences and ratios are taken
within each round first, and only then the median.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tests.bench.rounds import Row, Sample
from tests.bench.subjects import SUBJECTS

OURS, BASE = "manners", "direct"
Figure = Callable[[Sample, Sample], float]
"""Of a sample, and of the engine asked directly in the same round."""


def cpu(sample: Sample, direct: Sample) -> float:
    """Microseconds per chunk."""
    return sample.cpu_us


def added_ttft(sample: Sample, direct: Sample) -> float:
    """Milliseconds."""
    return sample.ttft50 - direct.ttft50


COLUMNS: dict[str, Callable[[Sample, Sample], float]] = {
    "CPU µs/chunk": cpu,
    "+TTFT p50 ms": added_ttft,
    "+TTFT p99 ms": lambda sample, direct: sample.ttft99 - direct.ttft99,
    "+gap p99 ms": lambda sample, direct: sample.gap99 - direct.gap99,
    "tokens/event": lambda sample, direct: sample.joined,
    "RSS MiB": lambda sample, direct: sample.rss_mib,
}
AIMS: tuple[tuple[Figure, str, str, float | None], ...] = (
    (cpu, "paced-c16", "smg", 1.0),
    (cpu, "paced-c16", "litellm", 1 / 30),
    (added_ttft, "first-c1", "litellm", 1 / 8),
    (cpu, "paced-c16", "before", 1.05),
    (cpu, "paced-c1", "before", 1.05),
    (cpu, "unpaced-c16", "before", 1.05),
    (added_ttft, "first-c1", "before", 1.05),
    (cpu, "paced-c16", "aiohttp", None),
    (cpu, "paced-c16", "nginx", None),
    (added_ttft, "first-c1", "smg", None),
)
"""A figure of ours over another's in a row, and the ratio that is aimed at."""


@dataclass(frozen=True)
class Report:
    """Everything that a run found out."""

    date: str
    command: str
    rounds: int
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    missing: Mapping[str, str]  # subject → why
    samples: Sequence[Sample]
    rows: Sequence[Row]

    def by_round(self, row: str, subject: str, figure: Figure) -> dict[int, float]:
        """A figure of each round in which it was measured, and the engine, too."""
        direct = {one.round: one for one in self.samples if (one.row, one.subject) == (row, BASE)}
        mine = [one for one in self.samples if (one.row, one.subject) == (row, subject)]
        return {one.round: figure(one, direct[one.round]) for one in mine if one.round in direct}

    def ratios(self, row: str, against: str, figure: Figure) -> list[float]:
        """Ours over another's, round by round."""
        ours, theirs = self.by_round(row, OURS, figure), self.by_round(row, against, figure)
        return [ours[number] / theirs[number] for number in ours.keys() & theirs.keys() if theirs[number]]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _ratios(report: Report) -> str:
    rows = []
    for figure, row, against, aim in AIMS:
        if found := report.ratios(row, against, figure):
            met = "" if aim is None else "met" if median(found) <= aim else "MISSED"
            ratio, spread = f"{median(found):.3f}", f"{min(found):.3f}–{max(found):.3f}"
            name = "CPU per chunk" if figure is cpu else "added TTFT p50"
            shown = "" if aim is None else f"{aim:.3f}"
            rows.append([name, row, SUBJECTS[against].title, ratio, spread, shown, met])
    return _table(("figure", "row", "Manners over", "ratio", "range over rounds", "aim", ""), rows)


def _row(report: Report, row: Row) -> str:
    """The subjects that were measured in a row, cheapest first."""
    found = {name: report.by_round(row.name, name, cpu) for name in SUBJECTS if name != BASE}
    lines = []
    for name in sorted(filter(found.get, found), key=lambda name: median(found[name].values())):
        all_figures = [report.by_round(row.name, name, figure).values() for figure in COLUMNS.values()]
        spread = f"{min(found[name].values()):.1f}–{max(found[name].values()):.1f}"
        lines.append([SUBJECTS[name].title, *(f"{median(values):.2f}" for values in all_figures), spread])
    return f"## {row.name}\n\n{row.title}.\n\n{_table(('', *COLUMNS, 'range of CPU'), lines)}"


def markdown(report: Report) -> str:
    """The page."""
    others = sorted(sample.others for sample in report.samples) or [0.0]
    facts = {
        **report.machine,
        "cores that others kept busy": f"{median(others):.2f} in the median sample, {others[-1]:.2f} in the worst",
        **{SUBJECTS[name].title: version for name, version in report.versions.items()},
        **{f"not measured: {SUBJECTS[name].title}": why for name, why in report.missing.items()},
    }
    measured = {sample.subject for sample in report.samples}
    does = [f"* {SUBJECTS[name].title}: {SUBJECTS[name].does}" for name in SUBJECTS if name in measured]
    run = f"{report.date}, {report.rounds} rounds after one to warm up: `{report.command}`"
    parts = [
        _HEAD,
        _ratios(report),
        *(_row(report, row) for row in report.rows if not row.name.startswith("unpaced")),
        "## What each does with a chunk\n\n" + "\n".join(does),
        f"## The run\n\n{run}\n\n" + "\n".join(f"* {name}: {value}" for name, value in facts.items()),
        _METHOD,
    ]
    return "\n\n".join(parts) + "\n"


def write(report: Report, folder: Path) -> list[Path]:
    """Write page and JSON; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / "bench.md", folder / "bench.json"
    page.write_text(markdown(report))
    data.write_text(json.dumps(asdict(report), indent=1) + "\n")
    return [page, data]


_HEAD = """# What the gateway costs

Written by `make bench`; do not edit. CPU is user and system time of a gateway's whole process tree
over the chunks that the engine sent. Added times (+) are above the engine asked directly in the same round.
Every figure is a median over rounds; ratios are taken within each round. Compare within this page only.
The rows in which all tokens come at once (unpaced) are in bench.json; their ratios are here."""

_METHOD = """## How

A scripted engine streams replies in vLLM's shape, one write a chunk; a load client checks every reply word for word. Engine,
client and gateways are processes of their own on loopback, one worker each; the gateways take turns, each round beginning
with another. Paced streams advance together, one token per 1 ms tick; each stream's first token leaves at once. A sample waits
until others leave the machine alone, and is taken again, up to twice, if they did not; the least disturbed one
counts. A gateway with an error in any stream is left out of the tables and named with the reason.
What the parts cost one by one: [bench-parts.md](bench-parts.md)."""
