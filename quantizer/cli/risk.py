"""`manners quantize risk --base DIR --source DIR [--device D] [--json]`: what rounding will leave of a fine-tune."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from quantizer.cli.ptq import shown


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser(
        "risk", help="estimate by layer, from the weights alone, what rounding to NVFP4 leaves of a fine-tune"
    )
    option = parser.add_argument
    option("--base", type=Path, required=True, metavar="DIR", help="the model before its fine-tune, in BF16")
    option("--source", type=Path, required=True, metavar="DIR", help="the fine-tuned model, in BF16")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Print the risk by layer. Returns the exit code. Raises QuantizerError."""
    from quantizer.core import cost
    from quantizer.verify.risk import assess, whole

    track = list if args.json else partial(shown, "reading layers")
    layers = assess(args.base, args.source, track, cost.chosen_device(args.device))
    rows = [layer.as_json() for layer in (*layers, whole(layers))]
    if args.json:
        print(json.dumps({"whole": rows[-1], "layers": rows[:-1]}, indent=2, allow_nan=False))
        return 0
    print("delta/step  sign kept  cosine   norm  layer")
    for row in rows:
        figures = (
            f"{row['delta_to_step']:10.3f}  {row['sign_kept']:9.1%}  {row['cosine']:6.3f}  {row['norm']:5.2f}"
        )
        print(f"{figures}  {row['name']}")
    return 0
