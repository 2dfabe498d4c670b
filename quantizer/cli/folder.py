"""`manners quantize verify|export|serve DIR`: check an NVFP4 folder, write its model in BF16, or answer with it."""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from os import EX_DATAERR
from pathlib import Path
from typing import Any, Final

from quantizer.cli.ptq import shown

SOUND: Final = 0
FAULTY: Final = 1
CHECK: Final = "check an NVFP4 folder by its own bytes; exit code 0: sound, 1: not"
EXPORT: Final = "write the model of an NVFP4 folder in BF16, with exactly the values that its bytes represent"
SERVE: Final = "serve an NVFP4 folder with weights and inputs rounded as FP4 hardware rounds them, for gates; not for production"


def add(verbs: Any) -> None:
    """Add the commands and their flags. verbs: the result of argparse's `add_subparsers`."""
    option = _command(verbs, "verify", CHECK, run_verify)
    option("--source", type=Path, metavar="DIR", help="the model it was made from, in BF16")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option("--json", action="store_true", help="print everything as JSON")
    option = _command(verbs, "export", EXPORT, run_export)
    option("--out", type=Path, required=True, metavar="DIR", help="the folder to make; must not exist")
    option("--json", action="store_true", help="print the result as JSON")
    option = _command(verbs, "serve", SERVE, run_serve)
    option("--name", metavar="NAME", help="the model's name in requests (default: the folder's)")
    option("--host", default="127.0.0.1", help="default: %(default)s")
    option("--port", type=int, default=8000, help="default: %(default)s")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option(
        "--weight-only",
        action="store_true",
        help="leave inputs in BF16 (W4A16), as kernels do on GPUs without FP4",
    )
    option("--one-by-one", action="store_true", help="no continuous batching: one request after another")


def _command(
    verbs: Any, name: str, words: str, part: Callable[[argparse.Namespace], int]
) -> Callable[..., Any]:
    """A command on a folder, and the function that adds an option to it."""
    parser = verbs.add_parser(name, help=words, description=words)
    parser.add_argument("folder", type=Path, metavar="DIR", help="the NVFP4 folder")
    parser.set_defaults(part=part)
    option: Callable[..., Any] = parser.add_argument
    return option


def run_verify(args: argparse.Namespace) -> int:
    """Check the folder and print the report. Returns the exit code."""
    from quantizer.core import cost
    from quantizer.verify.check import verify
    from quantizer.verify.folder import FolderError
    from quantizer.verify.report import as_json, lines

    track = list if args.json else partial(shown, "checking layers")
    device = cost.chosen_device(args.device)
    try:
        report = verify(args.folder, args.source, track, device)
    except FolderError as error:
        print(f"manners quantize verify: {error}", file=sys.stderr)
        return EX_DATAERR
    print(json.dumps(as_json(report), indent=2, allow_nan=False) if args.json else "\n".join(lines(report)))
    return SOUND if report.sound else FAULTY


def run_export(args: argparse.Namespace) -> int:
    """Write the folder. Returns the exit code."""
    from quantizer.checkpoint.unpack import unpack

    made = unpack(args.folder, args.out, now=datetime.now(UTC))
    facts = {"folder": str(args.out), "name": made.name, "format": made.format, "root": made.root}
    text = f"{args.out}: {made.name}, {made.format}, {made.root}"
    print(json.dumps(facts, indent=2) if args.json else text)
    return 0


def run_serve(args: argparse.Namespace) -> int:
    """Serve until it is stopped. Returns the exit code."""
    from quantizer.core import cost
    from quantizer.reference.server import Served, serve

    name = args.name or args.folder.resolve().name
    served = Served(folder=args.folder, name=name, host=args.host, port=args.port, device=cost.chosen_device(args.device),
                    weight_only=args.weight_only, batching=not args.one_by_one)  # fmt: skip
    serve(served, lambda line: print(line, file=sys.stderr, flush=True))
    return 0
