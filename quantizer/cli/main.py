"""`manners quantize …` and `manners data …`: assemble the subcommands, and report errors in one line each.

This folder is imported whenever `manners` starts, so it imports only the standard library at the top.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import EX_DATAERR, EX_IOERR, EX_UNAVAILABLE
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from quantizer.plan.machine import ReadHost

QUANTIZE: Final = ("plan", "risk", "ptq", "train", "surgery", "gguf", "folder", "compare", "card")
DATA: Final = ("data",)
"""Modules of this folder with a function `add(verbs)`. It sets the parser default `part` to `run(args) -> int`, and
`needs_torch` to false if the command works without torch."""
INTERRUPTED = 130
MISSING: Final = "torch is not installed, which this needs: make quantizer"


def add(commands: Any, read_host: ReadHost = lambda: None) -> None:
    """Add both commands. commands: the result of argparse's `add_subparsers`. read_host: for the check before a job;
    without it every job is admitted."""
    words = "quantize a model to NVFP4 or GGUF, and check the result"
    _command(commands, "quantize", QUANTIZE, words).set_defaults(read_host=read_host)
    words = "make and check conversations for calibration and training"
    _command(commands, "data", DATA, words)


def run(args: argparse.Namespace) -> int:
    """Run one subcommand. Returns its exit code, one of sysexits.h on an error."""
    called = f"manners {args.command} {args.verb}"
    if getattr(args, "needs_torch", True) and find_spec("torch") is None:
        print(f"{called}: {MISSING}", file=sys.stderr)
        return EX_UNAVAILABLE
    from gates.contracts.errors import GatesError
    from quantizer.core.errors import QuantizerError

    try:
        with _stoppable():
            return int(args.part(args))
    except QuantizerError as error:
        print(f"{called}: {error}", file=sys.stderr)
        return error.exit_code
    except GatesError as error:
        print(f"{called}: {error}", file=sys.stderr)
        return EX_DATAERR
    except OSError as error:
        print(f"{called}: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return EX_IOERR
    except KeyboardInterrupt:
        more = " with --resume" if "resume" in args else ""
        print(f"{called}: stopped; run the same command again{more}", file=sys.stderr)
        return INTERRUPTED


@contextmanager
def _stoppable() -> Iterator[None]:
    """Within a `with` block SIGTERM ends the work as Ctrl-C does, so that no unfinished folder is left."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _command(commands: Any, name: str, parts: tuple[str, ...], words: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(parser))
    for part in parts:
        importlib.import_module(f"quantizer.cli.{part}").add(verbs)
    parser.set_defaults(run=run)
    return parser
