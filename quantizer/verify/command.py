"""`manners quantize verify DIR [--source DIR] [--base DIR] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from os import EX_DATAERR, EX_USAGE
from typing import NoReturn

from rich.console import Console
from rich.progress import track

from quantizer.verify.check import verify
from quantizer.verify.flags import arguments
from quantizer.verify.folder import FolderError
from quantizer.verify.report import as_json
from quantizer.verify.show import render

SOUND, FAULTY = 0, 1
PLAIN_WIDTH = 140  # columns, where nobody's terminal says


class _Usage(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(f"{self.prog}: {message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="manners quantize verify",
        description="Check an NVFP4 folder of ModelOpt's layout by its own bytes. Exit code 0: sound, 1: not.",
    )
    arguments(parser)
    return parser


def run(argv: Sequence[str]) -> int:
    """Check what the arguments name and print the report; the exit code."""
    try:
        return check(_parser().parse_args(argv))
    except _Usage as error:
        print(error, file=sys.stderr)
        return EX_USAGE


def check(args: argparse.Namespace) -> int:
    """The same for arguments that are parsed already."""
    if args.base and not args.source:
        print("manners quantize verify: --base needs --source", file=sys.stderr)
        return EX_USAGE
    try:
        report = verify(args.folder, args.source, args.base, _quiet if args.json else _shown)
    except FolderError as error:
        print(f"manners quantize verify: {error}", file=sys.stderr)
        return EX_DATAERR
    if args.json:
        print(json.dumps(as_json(report), indent=2, allow_nan=False))
    else:
        Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(render(report))
    return SOUND if report.sound else FAULTY


def _quiet(names: list[str]) -> Iterable[str]:
    return names


def _shown(names: list[str]) -> Iterable[str]:
    return track(names, "checking layers", console=Console(stderr=True), transient=True)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
