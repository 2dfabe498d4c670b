"""`manners quantize compare REFERENCE DIR…`: how far quantized folders are from their source, as a table with intervals."""

import argparse
import json
from pathlib import Path
from typing import Any, Final

from quantizer.cli.ptq import shown

WORDS: Final = "compare models with the first on conversations: divergence, changed tokens, perplexity, replies; 95 % intervals"
MOST: Final = 10_000
HELD_OUT: Final = Path(__file__).parents[1] / "data" / "sets" / "voice" / "held_out.jsonl.xz"


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser("compare", help=WORDS, description=WORDS)
    option = parser.add_argument
    # fmt: off
    option("folders", type=Path, nargs="+", metavar="DIR",
           help="the reference, then others of its tokenizer: in BF16, F16, F32 or ModelOpt's NVFP4, or a .gguf file")
    option("--data", type=Path, default=HELD_OUT, metavar="FILE", help="conversations, JSONL (default: 97 shipped ones)")
    option("--conversations", type=int, default=256, metavar="N", help="so many, drawn by kind (default: %(default)s)")
    option("--template", metavar="T", help="hermes, or a .jinja file, in place of the reference's chat template")
    option("--weight-only", action="store_true", help="leave inputs of NVFP4 layers in BF16 (W4A16)")
    option("--replies", action="store_true",
           help="let each model answer every turn, too: exact calls (hermes), well-mannered speech")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option("--out", type=Path, metavar="FILE", help="write the table there as JSON, too")
    option("--json", action="store_true", help="print the table as JSON, without progress")
    # fmt: on
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Print the table. Returns the exit code. Raises QuantizerError."""
    from quantizer.core import cost
    from quantizer.core.errors import DataError
    from quantizer.data.render import read_template
    from quantizer.reference.compare import compare, lines

    if not 1 <= args.conversations <= MOST:
        raise DataError(f"--conversations {args.conversations}: must be from 1 to {MOST}")
    table = compare(
        args.folders, args.data, device=cost.chosen_device(args.device), conversations=args.conversations,
        template=read_template(args.template), weight_only=args.weight_only, replies=args.replies,
        track=(lambda name, items: items) if args.json else shown,
    )  # fmt: skip
    text = json.dumps(table, indent=2, allow_nan=False)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    print(text if args.json else "\n".join(lines(table)))
    return 0
