"""The `manners` command."""

import argparse
import io
import os
import signal
import sys
from os import EX_USAGE
from typing import TYPE_CHECKING

from app.cli import flags, quantize
from app.config.version import VERSION

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Parser(argparse.ArgumentParser):
    """argparse with one clear line and sysexits' code for a wrong flag."""

    def error(self, message: str) -> "None":  # type: ignore[override]
        self.exit(EX_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="manners", description=__doc__)
    parser.add_argument("--version", action="version", version=f"manners {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    flags.add_all(commands)
    quantize.add(commands)
    return parser


class _Pipe(io.FileIO):
    """stdout. Once nobody reads it, the command ends with the exit code of one that SIGPIPE has killed.

    The signal itself stays ignored, because it would come for every socket whose peer has gone, too.
    """

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    serves = (argv or sys.argv[1:])[:1] == ["serve"]  # which goes on
    out = sys.__stdout__
    if out is not None and out is sys.stdout and not serves:
        pipe = io.BufferedWriter(_Pipe(out.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(pipe, out.encoding, out.errors, line_buffering=out.line_buffering)
    try:
        args = _parser().parse_args(argv)
        return int(args.run(args))
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
