"""The `manners` command."""

import argparse
import os
import signal
import sys
from os import EX_USAGE

from app.cli import flags, quantize
from app.config.version import VERSION


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


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit code. Once nobody reads stdout it is SIGPIPE's, which stays ignored because of sockets."""
    try:
        try:
            args = _parser().parse_args(argv)
            return int(args.run(args))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
