"""The table in `docs/engines.md`: written from results on disk, one file an engine. Pure but for `save`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from app.conformance.suite import CHECK_NAMES as CHECK_NAMES
from app.conformance.suite import CheckOutcome
from tests.conformance.engines import COLUMNS, KINDS
from tests.generated import rewritten

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "engines.md"
RESULTS = Path(__file__).parent / "results"
PART = "make test, make test-vllm, make test-sglang, make test-gpu"


@dataclass(frozen=True)
class Column:
    """One engine's results."""

    kind: str
    version: str
    results: tuple[CheckOutcome, ...]

    def of(self, name: str) -> CheckOutcome | None:
        """The result of a row, if it was run."""
        return next((r for r in self.results if r.name == name), None)


def path(kind: str) -> Path:
    """Where an engine's results are kept."""
    return RESULTS / f"{kind}.json"


def load() -> dict[str, Column]:
    """All results that are kept."""
    out = {}
    for kind in COLUMNS:
        if path(kind).exists():
            data = json.loads(path(kind).read_text("utf-8"))
            out[kind] = Column(kind, data["version"], tuple(CheckOutcome(**row) for row in data["rows"]))
    return out


def save(column: Column) -> None:
    """Keep one engine's results, and write the document anew."""
    RESULTS.mkdir(exist_ok=True)
    data = {"version": column.version, "rows": [asdict(result) for result in column.results]}
    path(column.kind).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    DOCUMENT.write_text(written(DOCUMENT.read_text("utf-8"), load()), "utf-8")


def written(document: str, columns: Mapping[str, Column]) -> str:
    """The document with its generated part made from these results."""
    return rewritten(document, PART, table(columns))


def table(columns: Mapping[str, Column]) -> str:
    """A row for each engine, the checks by name, and the reasons of what is not right."""
    shown = [columns[kind] for kind in COLUMNS if kind in columns]
    reasons: list[str] = []
    lines = ["| engine | version | right | not right |", "|---|---|---|---|"]
    for column in shown:
        right = sum(row.right for row in column.results)
        wrong = [_wrong(row, reasons) for row in column.results if not row.right]
        lines.append(
            f"| {KINDS[column.kind].title} | {column.version} | {right} of {len(CHECK_NAMES)} | {'; '.join(wrong)} |"
        )
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join(
        [*lines, "", f"The checks: {'; '.join(CHECK_NAMES)}.", "", *notes, *([""] if notes else [])]
    )


def plain(results: Sequence[CheckOutcome]) -> str:
    """For a terminal."""
    return "\n".join(
        f"{'ok' if r.right else 'NO':3} {r.name}{': ' + r.why if r.why else ''}" for r in results
    )


def _wrong(result: CheckOutcome, reasons: list[str]) -> str:
    if result.why not in reasons:
        reasons.append(result.why)
    return f"{result.name} ({reasons.index(result.why) + 1})"
