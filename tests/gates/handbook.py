"""The figures in `docs/gates.md`, computed again: `python -m tests.gates.handbook` writes them into it."""

from pathlib import Path
from typing import Final

from tests.gates.detect.corpora import OF_PLAIN_TEXT, scores
from tests.generated import rewritten

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "gates.md"


def written(document: str) -> str:
    """The document with its generated parts made anew. Raises ValueError where a mark is missing."""
    document = rewritten(document, "detectors", detectors())
    return rewritten(document, "real texts", real_texts())


def detectors() -> str:
    """Recall and false positives, corpus by corpus; the groups of the leak corpus each."""
    lines = ["| corpus | found | false positives |", "|---|---|---|"]
    for score in scores():
        if not score.group or score.corpus == "leak":
            name = f"… {score.group}" if score.group else f"**{score.corpus}**"
            lines.append(f"| {name} | {score.recall} | {score.false_positives} |")
    return "\n".join(lines) + "\n"


def real_texts() -> str:
    """The same on real texts, by the model or package that wrote them, with the one-sided upper bound of false positives."""
    lines = ["| detector | texts of | found | false positives | at most (95 %) |", "|---|---|---|---|---|"]
    for name in OF_PLAIN_TEXT:
        for score in scores(name):
            found = f"{score.recall.found} of {score.recall.of}" if score.recall.of else ""
            title = f"**{name}** | all" if not score.group else f" | {score.group}"
            wrong = score.false_positives
            lines.append(f"| {title} | {found} | {wrong.found} of {wrong.of} | {100 * wrong.bound:.2f} % |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text("utf-8")), "utf-8")
