"""The flags of `manners quantize verify`; the standard library only, since they are read at every start."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    option = parser.add_argument
    option("folder", type=Path, metavar="DIR", help="the NVFP4 folder")
    option("--source", type=Path, metavar="DIR", help="the model it was made from, in BF16")
    option("--base", type=Path, metavar="DIR", help="that model before its fine-tune; needs --source")
    option("--json", action="store_true", help="everything as JSON, for scripts")
