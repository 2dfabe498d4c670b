"""`python -m gates.detect [DETECTOR ...]`: recall and false positives of the detectors over their labelled corpora.

The exit code is 1 if a corpus misses its threshold, 64 for a wrong flag or file.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from os import EX_USAGE
from typing import Any, Final, Literal, NoReturn

from rich import box
from rich.console import Console
from rich.table import Table

from gates.contracts.errors import GatesError
from gates.detect.catalogue import DETECTORS
from gates.detect.corpus import FOLDER, load_all
from gates.detect.measure import CorpusScore, scores

_WIDTH: Final = 140  # characters of the table, also without a terminal
_COLUMNS: Final[tuple[tuple[str, Literal["left", "right"]], ...]] = (
    ("corpus", "left"), ("found", "right"), ("recall %", "right"), ("mistaken", "right"),
    ("rate %", "right"), ("bar", "left"),
)  # fmt: skip
_NOTE: Final = (
    "In brackets: Clopper-Pearson's two-sided 95 % interval. A row that is indented belongs to the one above,"
    " or does not count."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EX_USAGE, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        return _measure(_parser().parse_args(argv))
    except (GatesError, OSError) as error:
        sys.stderr.write(f"gates.detect: {error}\n")
        return EX_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m gates.detect", description="Recall and false positives of the detectors."
    )
    parser.add_argument(
        "detectors", nargs="*", metavar="DETECTOR", help=f"some of {', '.join(DETECTORS)}; all if none"
    )
    parser.add_argument("--json", action="store_true", help="for a script")
    parser.add_argument("--misses", action="store_true", help="name every case that came out wrong")
    return parser


def _measure(options: argparse.Namespace) -> int:
    unknown = sorted(set(options.detectors) - DETECTORS.keys())
    if unknown:
        raise GatesError(f"no detector {', '.join(unknown)}; there are {', '.join(DETECTORS)}")
    chosen = [line for line in load_all() if line.detector in (options.detectors or DETECTORS)]
    if not chosen:
        raise GatesError(f"{FOLDER} holds no case for {', '.join(options.detectors)}")
    all_ = scores(chosen)
    if options.json:
        document = [_document(score) for score in all_]
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    else:
        _show(all_, options.misses)
    return 0 if all(score.reaches for score in all_ if not score.group) else 1


def _document(score: CorpusScore) -> dict[str, Any]:
    names = (
        "corpus", "hits", "found", "recall", "recall_interval", "clean", "wrong", "false_positives",
        "false_positive_interval", "missed", "mistaken",
    )  # fmt: skip
    out: dict[str, Any] = {name: getattr(score, name) for name in names} | {"group": score.group or None}
    return out if score.group else out | {"bar": asdict(score.bar), "reaches": score.reaches}


def _show(all_: Sequence[CorpusScore], misses: bool) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH)
    table = Table(box=box.SIMPLE_HEAD)
    for name, justify in _COLUMNS:
        table.add_column(name, justify=justify, no_wrap=True)
    for score in all_:
        table.add_row(*_row(score), style="dim" if score.group else "")
    console.print(table)
    for score in all_:
        if not score.group and (misses or not score.reaches):
            for told in (*score.missed, *score.mistaken):
                console.print(told, markup=False)
    console.print(_NOTE, style="dim")


def _row(score: CorpusScore) -> tuple[str, ...]:
    bar = ""
    if not score.group:
        told = f"{100 * score.bar.recall:g}, {100 * score.bar.false_positives:g}"
        bar = f"{told} reached" if score.reaches else f"{told} [red]missed[/]"
    return (
        f"  {score.group}" if score.group else score.corpus,
        f"{score.found}/{score.hits}" if score.hits else "",
        _share(score.recall, score.recall_interval),
        f"{score.wrong}/{score.clean}" if score.clean else "",
        _share(score.false_positives, score.false_positive_interval),
        bar,
    )


def _share(share: float | None, interval: tuple[float, float] | None) -> str:
    if share is None or interval is None:
        return ""
    return f"{100 * share:.1f} ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"


if __name__ == "__main__":
    sys.exit(main())
