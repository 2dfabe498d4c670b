"""The figures in `docs/gates.md`, computed again: `python -m tests.gates.handbook` writes them into it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gates.detect.corpus import load_all
from gates.detect.measure import CorpusScore, scores
from tests.generated import rewritten

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "gates.md"


def written(document: str) -> str:
    """The document with its generated part made anew. Raises ValueError where a mark is missing."""
    return rewritten(document, "detectors", detectors())


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
