"""The figures as a page for people and as JSON for scripts."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.figures import Line, Ratio, Sample, line, ratios
from tests.bench.rounds import ROWS, Row
from tests.bench.subjects import SUBJECTS

COLUMNS = ("", "CPU µs/chunk", "range", "+TTFT p50 ms", "+TTFT p99 ms", "+gap p99 ms", "RSS MiB")


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
    rows: Sequence[Row] = ROWS

    @property
    def ratios(self) -> list[Ratio]:
        """Ours over the others'."""
        return ratios(self.samples, "manners")

    def lines(self, row: Row) -> list[Line]:
        """The subjects that were measured in a row, cheapest first."""
        found = [line(self.samples, row.name, name) for name in SUBJECTS if name != "direct"]
        return sorted((one for one in found if one), key=lambda one: one.cpu_us)


def cells(one: Line) -> list[str]:
    """A line as it is shown, in the order of COLUMNS."""
    return [
        SUBJECTS[one.subject].title,
        f"{one.cpu_us:.1f}",
        f"{one.cpu_low:.1f}–{one.cpu_high:.1f}",
        _ms(one.added_ttft50),
        _ms(one.added_ttft99),
        _ms(one.added_gap99),
        f"{one.rss_mib:.0f}",
    ]


def _each_does(report: Report) -> Iterator[str]:
    """What a subject does with a chunk, and whether it made fewer events of them in some row."""
    lines = [one for row in report.rows for one in report.lines(row)]
    for name in dict.fromkeys(one.subject for one in lines):
        most = max(one.joined for one in lines if one.subject == name)
        joined = "" if most < 1.05 else f"; joins up to {most:.1f} tokens per event"
        yield f"* {SUBJECTS[name].title}: {SUBJECTS[name].does}{joined}"


def _ms(value: float) -> str:
    return "" if math.isnan(value) else f"{value:+.2f}"


def verdict(ratio: Ratio) -> list[str]:
    """A ratio as it is shown."""
    against = SUBJECTS[ratio.against].title
    times = f"{ratio.value:.2f}" if ratio.value >= 0.1 else f"1/{1 / ratio.value:.0f}"
    spread = f"{ratio.low:.3f}–{ratio.high:.3f}"
    if ratio.aim is None:
        return [ratio.figure, ratio.row, against, times, spread, "", ""]
    aim = f"{ratio.aim:g}" if ratio.aim >= 1 else f"1/{1 / ratio.aim:.0f}"
    return [
        ratio.figure,
        ratio.row,
        against,
        times,
        spread,
        aim,
        "met" if ratio.value <= ratio.aim else "MISSED",
    ]


RATIO_COLUMNS = ("figure", "row", "Manners over", "ratio", "range over rounds", "aim", "")


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def markdown(report: Report) -> str:
    """The page."""
    parts = [_HEAD, _markdown_table(RATIO_COLUMNS, [verdict(ratio) for ratio in report.ratios])]
    for row in report.rows:
        if row.name.startswith("unpaced"):  # no engine sends tokens so
            continue
        rows = [cells(one) for one in report.lines(row)]
        parts += [f"## {row.name}\n\n{row.title[0].upper()}{row.title[1:]}.", _markdown_table(COLUMNS, rows)]
    parts += ["## What each does with a chunk", "\n".join(_each_does(report))]
    if report.missing:
        rows = [[SUBJECTS[name].title, why.replace("|", "/")] for name, why in report.missing.items()]
        parts += ["## Not measured", _markdown_table(("subject", "why"), rows)]
    return "\n\n".join([*parts, _run(report), _METHOD]) + "\n"


def _run(report: Report) -> str:
    others = sorted(sample.others for sample in report.samples) or [0.0]
    shared = (
        f"kept {others[len(others) // 2]:.2f} cores busy in the median sample, {others[-1]:.2f} in the worst"
    )
    facts = {
        **report.machine,
        "others on the machine": shared,
        **{SUBJECTS[k].title: v for k, v in report.versions.items()},
    }
    lines = [f"* {key}: {value}" for key, value in facts.items()]
    what = f"{report.date}, {report.rounds} rounds after one to warm up: `{report.command}`"
    return "\n".join(["## The run", "", what, "", *lines])


def write(report: Report, folder: Path) -> list[Path]:
    """Write page and JSON; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    raw: dict[str, Any] = asdict(report)
    raw["lines"] = [asdict(one) for row in report.rows for one in report.lines(row)]
    raw["ratios"] = [asdict(ratio) for ratio in report.ratios]
    page, data = folder / "bench.md", folder / "bench.json"
    page.write_text(markdown(report))
    data.write_text(json.dumps(raw, indent=1) + "\n")
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
