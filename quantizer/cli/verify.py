"""`manners quantize verify DIR [--source DIR] [--json]`: check an NVFP4 folder; exit code 0: sound, 1: not."""

import argparse
import json
import sys
from functools import partial
from os import EX_DATAERR
from pathlib import Path
from typing import Any, Final

from quantizer.cli.ptq import shown

SOUND: Final = 0
FAULTY: Final = 1


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser(
        "verify", help="check an NVFP4 folder by its own bytes; exit code 0: sound, 1: not"
    )
    option = parser.add_argument
    option("folder", type=Path, metavar="DIR", help="the NVFP4 folder")
    option("--source", type=Path, metavar="DIR", help="the model it was made from, in BF16")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Check the folder and print the report. Returns the exit code."""
    from quantizer.core import cost
    from quantizer.verify.check import verify
    from quantizer.verify.folder import FolderError
    from quantizer.verify.render import lines
    from quantizer.verify.report import as_json

    track = list if args.json else partial(shown, "checking layers")
    device = cost.chosen_device(args.device)
    try:
        report = verify(args.folder, args.source, track, device)
    except FolderError as error:
        print(f"manners quantize verify: {error}", file=sys.stderr)
        return EX_DATAERR
    print(json.dumps(as_json(report), indent=2, allow_nan=False) if args.json else "\n".join(lines(report)))
    return SOUND if report.sound else FAULTY
