"""`manners quantize serve DIR`: an engine of reference, which serves an NVFP4 folder with the rounding of FP4 hardware."""

import argparse
import sys
from pathlib import Path
from typing import Any

WORDS = "serve an NVFP4 folder with weights and inputs rounded as FP4 hardware rounds them, for gates; not for production"


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser("serve", help=WORDS, description=WORDS)
    option = parser.add_argument
    option("folder", type=Path, metavar="DIR", help="the NVFP4 folder")
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
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Serve until it is stopped. Returns the exit code."""
    from quantizer.core import cost
    from quantizer.reference.server import Served, serve

    name = args.name or args.folder.resolve().name
    served = Served(folder=args.folder, name=name, host=args.host, port=args.port, device=cost.chosen_device(args.device),
                    weight_only=args.weight_only, batching=not args.one_by_one)  # fmt: skip
    serve(served, lambda line: print(line, file=sys.stderr, flush=True))
    return 0
