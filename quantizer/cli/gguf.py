"""`manners quantize gguf DIR --out DIR --type TYPE`."""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from quantizer.cli.plan import force_argument, refuse_gguf_if_short

TYPES: Final = ("f16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q2_k", "nvfp4")


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser(
        "gguf",
        help="write a GGUF file for llama.cpp",
        description="Write a GGUF file from a BF16 folder, or losslessly from an NVFP4 folder.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="a Hugging Face folder, in BF16 or NVFP4")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--type",
        dest="kind",
        choices=TYPES,
        required=True,
        help="llama-quantize's names; nvfp4 needs an NVFP4 folder, the others a BF16 folder (f16: either)",
    )
    force_argument(parser)
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Write the GGUF file. Returns the exit code. Raises QuantizerError."""
    from quantizer.gguf.make import make_gguf

    refuse_gguf_if_short(args)
    made = make_gguf(args.folder, args.out, args.kind, datetime.now(UTC))
    file = max(made.files, key=lambda entry: entry.size)
    types = ", ".join(f"{count} {kind}" for kind, count in made.provenance.recipe["tensors"].items())
    print(f"written: {args.out / file.path}, {file.size / 1e6:.1f} MB ({types}), {made.root}")
    return 0
