"""The figures in `docs/gates.md`, computed again: `python -m tests.gates.handbook` writes them into it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gates.detect.corpus import OF_PLAIN_TEXT, load_all, load_real
from gates.detect.measure import CorpusScore, scores
from tests.generated import rewritten

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "gates.md"


def written(document: str) -> str:
    """The document with its generated parts made anew. Raises ValueError where a mark is missing."""
    document = rewritten(document, "detectors", detectors())
    return rewritten(document, "real texts", real_texts())


def detectors() -> str:
    """Recall and false positives, corpus by corpus; the groups of the leak corpora each."""
    lines = [
        "| corpus | found | 95 % interval | false positives | 95 % interval |",
        "|---|---|---|---|---|",
        *(line for score in scores(load_all()) for line in _line(score)),
    ]
    return "\n".join(lines) + "\n"


def real_texts() -> str:
    """The same on real texts, by the model or package that wrote them, with the one-sided upper bound of false positives."""
    lines = ["| detector | texts of | found | false positives | at most (95 %) |", "|---|---|---|---|---|"]
    for name in OF_PLAIN_TEXT:
        for score in scores(load_real(name)):
            found = f"{score.found} of {score.hits}" if score.hits else ""
            bound = "" if score.false_positive_bound is None else f"{100 * score.false_positive_bound:.2f} %"
            title = f"**{name}** | all" if not score.group else f" | {score.group}"
            lines.append(f"| {title} | {found} | {score.wrong} of {score.clean} | {bound} |")
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
