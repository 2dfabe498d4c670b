"""`python -m gates.detect [DETECTOR ...]`: recall and false positives of the detectors over their labelled corpora.

The exit code is 1 if a corpus misses its threshold, 2 for a wrong flag.
"""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gates.detect.catalogue import DETECTORS
from gates.detect.corpus import OF_PLAIN_TEXT, CorpusScore, load_all, load_real, scores

_WIDTH = 140  # characters of the table, also without a terminal
_COLUMNS = ("corpus", "found", "false positives", "bar, %")
_NOTE = (
    "In brackets: Clopper-Pearson's two-sided 95 % interval. A row that is indented belongs to the one above."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m gates.detect", description=__doc__)
    known = f"some of {', '.join(DETECTORS)}; all if none"
    parser.add_argument("detectors", nargs="*", metavar="DETECTOR", help=known)
    parser.add_argument("--misses", action="store_true", help="name every case that came out wrong")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.detectors) - DETECTORS.keys()):
        parser.error(f"no detector {', '.join(unknown)}; there are {', '.join(DETECTORS)}")
    names = options.detectors or list(DETECTORS)
    chosen = [line for line in load_all() if line.detector in names]
    chosen += [line for name in OF_PLAIN_TEXT if name in names for line in load_real(name)]
    console, table = Console(highlight=False), Table(*_COLUMNS)
    console.width = max(console.width, _WIDTH)
    wholes = []
    for score in scores(chosen):
        table.add_row(*_row(score), style="dim" if score.group else "")
        wholes += [] if score.group else [score]
    console.print(table)
    for score in wholes:
        if options.misses or not score.reaches:
            console.print(*score.missed, *score.mistaken, sep="\n", markup=False)
    console.print(_NOTE, style="dim")
    return 0 if all(score.reaches for score in wholes) else 1


def _row(score: CorpusScore) -> tuple[str, ...]:
    if score.group:
        return f"  {score.group}", str(score.recall), str(score.false_positives), ""
    bar = f"{100 * score.bar.recall:g}, {100 * score.bar.false_positives:g}"
    reached = "reached" if score.reaches else "[red]missed[/]"
    return score.corpus, str(score.recall), str(score.false_positives), f"{bar} {reached}"


if __name__ == "__main__":
    sys.exit(main())
