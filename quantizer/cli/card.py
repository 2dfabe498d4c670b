"""`manners quantize card DIR [--report report.json [--trust KEY]]`: print a model card. Exit code 65: faulty input."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from quantizer.checkpoint.card import GateReport

WORDS: Final = "print the model card of a sealed folder, from its manifest and its gate's report"


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser("card", help=WORDS, description=WORDS)
    option = parser.add_argument
    option("folder", type=Path, metavar="DIR", help="a folder with artefact.json")
    option(
        "--report",
        type=Path,
        metavar="FILE",
        help="report.json of `manners gate run`; without it, the card has no results",
    )
    option(
        "--trust",
        type=Path,
        action="append",
        metavar="KEY",
        help="a public key, or a folder of them: the report must be signed by one (default: not checked, and the card says so)",
    )
    parser.set_defaults(part=run, needs_torch=False)


def run(args: argparse.Namespace) -> int:
    """Print the card. Returns the exit code. Raises QuantizerError or GatesError."""
    from gates.artefact import artefact
    from quantizer.checkpoint.card import card
    from quantizer.core.errors import SourceError

    if problems := artefact.verify(args.folder):
        raise SourceError(f"{args.folder}: is not what its artefact.json says: {problems[0]}")
    print(
        card(artefact.load(args.folder), read(args.report, args.trust or ()) if args.report else None), end=""
    )
    return 0


def read(path: Path, places: Any) -> GateReport:
    """Read a report; verify its signature if keys are given. Raises ReportError or KeyFileError."""
    from gates.report.files import open_report
    from gates.report.keys import trusted
    from quantizer.checkpoint.card import GateReport

    opened = open_report(path, trusted(places) if places else None)
    return GateReport(opened.statement, opened.digest, opened.signers)
