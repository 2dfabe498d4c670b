"""`manners quantize risk --base DIR --source DIR [--device D] [--json]`: what rounding will leave of a fine-tune."""

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from quantizer.cli.ptq import shown
from quantizer.verify import prediction


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
    everything = whole(layers)
    rows = [layer.as_json(everything.weights) for layer in (*layers, everything)]
    survives = {
        name: one.within(everything.delta_to_step, everything.weights)
        for name, one in (("manners", prediction.MANNERS), ("knowledge", prediction.KNOWLEDGE))
    }
    if args.json:
        told = {"survives": survives, "calibrated": prediction.measured(everything.weights)}
        told |= {"whole": rows[-1], "layers": rows[:-1]}
        print(json.dumps(told, indent=2, allow_nan=False))
        return 0
    print("delta/step  sign kept  cosine   norm  risk    layer")
    for row in rows:
        figures = (
            f"{row['delta_to_step']:10.3f}  {row['sign_kept']:9.1%}  {row['cosine']:6.3f}  {row['norm']:5.2f}"
        )
        print(f"{figures}  {row['risk']:<6}  {row['name']}")
    print(_survives(survives, everything.weights))
    return 0


def _survives(shares: Mapping[str, float], weights: int) -> str:
    told = ", ".join(f"{share:.1%} of the {name}" for name, share in shares.items())
    size = (
        ""
        if prediction.measured(weights)
        else (
            f" Measured were models of {prediction.WEIGHTS[0] / 1e6:.1f} to {prediction.WEIGHTS[1] / 1e6:.0f} million weights;"
            f" yours, with {weights / 1e6:,.1f}, is taken as the nearest of them."
        )
    )
    return f"predicted to survive the recipe default: {told} (docs/study).{size} Only the gate can say."
