"""`manners quantize ptq` and `manners quantize recipes`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from quantizer.cli.plan import force_argument, refuse_if_short

BETWEEN_LINES: Final = 10.0
"""Seconds between two lines of progress."""
if TYPE_CHECKING:
    from gates.artefact.artefact import Artefact


def add(verbs: Any) -> None:
    """Add the commands and their flags. verbs: the result of argparse's `add_subparsers`."""
    quantize = verbs.add_parser("ptq", help="quantize without training: scales, AWQ, a mix of NVFP4 and BF16")
    job_arguments(quantize, recipe="default")
    quantize.set_defaults(part=run)
    recipes = verbs.add_parser("recipes", help="list the recipes")
    recipes.add_argument("--json", action="store_true", help="print all values as JSON")
    recipes.set_defaults(part=run_recipes, needs_torch=False)


def job_arguments(parser: argparse.ArgumentParser, recipe: str) -> None:
    """Add the flags that every job has which turns a model folder, a recipe and data into a new folder."""
    option = parser.add_argument
    option("--recipe", default=recipe, metavar="R", help="a shipped recipe or a .toml (default: %(default)s)")
    option("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE",
           help="change one value of the recipe, such as layers.last=1; may be repeated")  # fmt: skip
    option("--source", type=Path, required=True, metavar="DIR",
           help="the model: a Hugging Face folder in BF16, a .gguf file, which is dequantized first, or a LoRA adapter of PEFT's")  # fmt: skip
    option("--base", type=Path, metavar="DIR",
           help="the model before its fine-tune, for the recipe delta, or to merge a LoRA adapter into")  # fmt: skip
    option("--data", type=Path, required=True, metavar="FILE", help="conversations, JSONL")
    option("--out", type=Path, required=True, metavar="DIR", help="the folder to make; must not exist")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option("--template", metavar="T",
           help="hermes, or a .jinja file: the chat template in place of the folder's, in the result too")  # fmt: skip
    option("--proof", choices=("full", "sample", "none"), default="full",
           help="compare the result with what was computed on 8 conversations, on 1, or not (default: %(default)s)")  # fmt: skip
    option("--resume", action="store_true", help="resume from the checkpoints of the same run, if any")
    option("--json", action="store_true", help="print the result as JSON, without progress")
    force_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run `quantize ptq`. Returns the exit code."""
    from quantizer.checkpoint.from_gguf import as_folder
    from quantizer.core import cost
    from quantizer.data.render import read_template
    from quantizer.ptq import quantize
    from quantizer.recipes.recipe import load_recipe

    recipe, device = load_recipe(args.recipe, args.changes), cost.chosen_device(args.device)
    quantize.require_packages(recipe)
    template = read_template(args.template)
    base = as_folder(args.base, args.out) if args.base else nullcontext()
    with base as args.base, as_folder(args.source, args.out, args.base) as folder:
        if folder != args.source and not (recipe.feedback and recipe.feedback.delta):
            args.base = None  # the adapter's, and merged
        args.source = folder
        refuse_if_short(args, recipe, device)
        made = quantize.run(
            recipe,
            args.source,
            args.data,
            args.out,
            now=datetime.now(UTC),
            device=device,
            track=quantize.no_progress if args.json else shown,
            base=args.base,
            template=template,
            proof=args.proof,
            resume=args.resume,
        )
    print(json.dumps(facts(made, args.out), indent=2) if args.json else "\n".join(lines(made, args.out)))
    return 0


def run_recipes(args: argparse.Namespace) -> int:
    """List the shipped recipes. Returns the exit code."""
    from quantizer.recipes.recipe import load_recipe, recipe_as_json, shipped_recipes

    recipes = [load_recipe(name) for name in shipped_recipes()]
    if args.json:
        print(json.dumps([recipe_as_json(recipe) for recipe in recipes], indent=2))
        return 0
    for recipe in recipes:
        print(f"{recipe.name:18} {recipe.kind:7} {recipe.description}")
    return 0


def facts(made: Artefact, out: Path) -> dict[str, Any]:
    """The result as JSON values, for scripts."""
    outcome = made.provenance.recipe["outcome"]
    return {"folder": str(out), "name": made.name, "format": made.format, "root": made.root, **outcome}


def lines(made: Artefact, out: Path) -> Iterable[str]:
    """The result as text, for a person."""
    outcome = made.provenance.recipe["outcome"]
    yield f"{out}: {made.name}, {made.format}, {made.root}"
    yield from proof_lines(outcome["check"], "calibrated")
    if auto := outcome.get("auto"):
        mix = auto["chosen"]
        yield f"  {mix['bits']:.2f} bits a weight, divergence {mix['divergence']:.4f}, {mix['kept_groups']} groups in BF16"
    yield spent(outcome)


def proof_lines(check: dict[str, Any], made: str) -> Iterable[str]:
    """What was proven of a result, as text. made: how it came to be."""
    if "parity" not in check:
        yield f"  {check['layers']} layers in NVFP4; nothing was checked (--proof none)"
        return
    parity = check["parity"]
    exact = "to the bit" if parity["equal"] == parity["tokens"] else "to BF16 rounding"
    yield f"  {check['layers']} layers in NVFP4, {check['sqnr_db']:.1f} dB signal to rounding noise"
    yield f"  computes what was {made}: equal logits at {parity['tokens']} tokens, {exact}"


def spent(outcome: dict[str, Any]) -> str:
    """Time and memory, as text."""
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in outcome["seconds"].items())
    return f"  {parts}; {outcome['peak_memory_bytes'] / 1e9:.1f} GB at most, {outcome['device']}"


def shown(name: str, items: Sequence[Any]) -> Iterable[Any]:
    """Iterate with a progress bar on stderr that disappears at the end; without a terminal, with lines."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, name, console=console, transient=True) if console.is_terminal else _told(name, items)


def _told(name: str, items: Sequence[Any]) -> Iterable[Any]:
    began = last = monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if (now := monotonic()) - last >= BETWEEN_LINES:
            last, left = now, (now - began) / done * (len(items) - done)
            print(f"{name}: {done} of {len(items)}, about {left:.0f} s left", file=sys.stderr, flush=True)
