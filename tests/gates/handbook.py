"""The figures in `docs/gates.md`, computed again: `python -m tests.gates.handbook` writes them into it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gates.detect.corpus import load_all
from gates.detect.measure import CorpusScore, scores
from gates.judge.operating import OperatingRow, operating_table
from gates.policy.load import load_policy, shipped
from tests.generated import rewritten

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "gates.md"


def written(document: str) -> str:
    """The document with its generated parts made anew. Raises ValueError where a mark is missing."""
    document = rewritten(document, "policies", policies())
    return rewritten(document, "detectors", detectors())


def policies() -> str:
    """annie's table, and of the other policies the rows in which they differ from it."""
    annie = operating_table(load_policy("annie"))
    parts = ["`annie`:\n", _table(annie)]
    for name in (name for name in shipped() if name != "annie"):
        rows = tuple(row for row in operating_table(load_policy(name)) if row not in annie)
        says = "differs from `annie` in these rules:\n" if rows else "has the same rules and sizes.\n"
        parts += [f"`{name}` {says}", *([_table(rows)] if rows else [])]
    return "\n".join(parts)


def _table(rows: tuple[OperatingRow, ...]) -> str:
    """One line a rule; the sentences without the words that are in the heading."""
    lines = [
        "| gate | tier | rule | asks | passes a model that … in so many runs |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        words = re.sub(r"^.*? (?:model|engine) that | of (?:the time|runs|requests)", "", row.words)
        words = words.replace(", and one at", "; at").replace(", and an equal one", "; is equal")
        asks = row.asks.replace(", extended to ", "–")
        lines.append(f"| {row.gate} | {row.tier} | {row.rule} | {asks} | {words} |")
    return "\n".join(lines) + "\n"


def detectors() -> str:
    """Recall and false positives, corpus by corpus; the groups of the leak corpora each."""
    lines = [
        "| corpus | found | 95 % interval | false positives | 95 % interval |",
        "|---|---|---|---|---|",
        *(line for score in scores(load_all()) for line in _line(score)),
    ]
    return "\n".join(lines) + "\n"


def _line(score: CorpusScore) -> Iterator[str]:
    if score.group and not score.corpus.startswith("leak"):
        return
    name = f"… {score.group}" if score.group else f"**{score.corpus}**"
    found = f"{score.found} of {score.hits}" if score.hits else ""
    wrong = f"{score.wrong} of {score.clean}" if score.clean else ""
    yield (
        f"| {name} | {found} | {_interval(score.recall_interval)} "
        f"| {wrong} | {_interval(score.false_positive_interval)} |"
    )


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{100 * ends[0]:.1f}–{100 * ends[1]:.1f} %"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text("utf-8")), "utf-8")
