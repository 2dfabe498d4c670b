"""`manners quantize verify DIR`: the flags; the check itself is `quantizer.verify.command`."""

from __future__ import annotations

import argparse
from typing import Any

from quantizer.verify.flags import arguments


def add(verbs: Any) -> None:
    """The command's flags. verbs: of argparse's `add_subparsers`."""
    parser = verbs.add_parser(
        "verify", help="check an NVFP4 folder by its own bytes; exit code 0: sound, 1: not"
    )
    arguments(parser)
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    from quantizer.verify.command import check

    return check(args)
