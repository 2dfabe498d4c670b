"""The `manners` command."""

import argparse
import gc
import io
import os
import signal
import sys
from functools import partial
from os import EX_CONFIG, EX_USAGE
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli import access, bench, doctor, engine, gate, operate, quantize, shadow, state
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
    server = commands.add_parser("serve", help="run the gateway")
    server.add_argument("--config", type=Path, metavar="FILE", help="TOML; without it, the embedded default")
    chat = commands.add_parser("chat", help="talk to a model in the terminal")
    chat.add_argument("message", nargs="?", help="one message; without it, a conversation")
    chat.add_argument("--url", default="http://127.0.0.1:8080", help="the gateway (default: %(default)s)")
    chat.add_argument("--model", default="annie", help="the public model name (default: %(default)s)")
    chat.add_argument("--think", action="store_true", help="ask the model to think first")
    for command in (engine, gate, quantize, operate, access, doctor, bench, shadow, state):
        command.add(commands)
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
    if out is not None and out is sys.stdout and not serves and hasattr(signal, "SIGPIPE"):
        pipe = io.BufferedWriter(_Pipe(out.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(pipe, out.encoding, out.errors, line_buffering=out.line_buffering)
    try:
        return _run(argv)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _run(argv: list[str] | None) -> int:
    args = _parser().parse_args(argv)
    if "run" in args:
        return int(args.run(args))
    if args.command == "chat":
        from app.cli import chat

        return chat.run(args.url, args.model, args.message, args.think)
    return _serve(args.config)


def _serve(path: Path | None) -> int:
    """Run the gateway; its exit code. What it makes until it listens stays, so that nothing is collected meanwhile: it took a sixth of a start."""
    gc.disable()
    try:
        from app import server
        from app.config.config import ConfigError, load

        try:
            server.run(load(path), partial(load, path))
        except ConfigError as error:
            print(f"manners: {error}", file=sys.stderr)
            return EX_CONFIG
        return 0
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
