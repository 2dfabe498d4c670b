"""`manners quantize export DIR --out DIR`: write the model of an NVFP4 folder in plain BF16."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

WORDS = "write the model of an NVFP4 folder in BF16, with exactly the values that its bytes represent"


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser("export", help=WORDS, description=WORDS)
    option = parser.add_argument
    option("folder", type=Path, metavar="DIR", help="the NVFP4 folder")
    option("--out", type=Path, required=True, metavar="DIR", help="the folder to make; must not exist")
    option("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Write the folder. Returns the exit code."""
    from quantizer.checkpoint.unpack import unpack

    made = unpack(args.folder, args.out, now=datetime.now(UTC))
    facts = {"folder": str(args.out), "name": made.name, "format": made.format, "root": made.root}
    text = f"{args.out}: {made.name}, {made.format}, {made.root}"
    print(json.dumps(facts, indent=2) if args.json else text)
    return 0
