"""`manners quantize ptq` and `manners quantize recipes`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from os import EX_UNAVAILABLE
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantizer.cli.plan import force_argument, refuse_if_short

if TYPE_CHECKING:
    from gates.artefact.manifest import Artefact
    from quantizer.recipes.recipe import Recipe


def add(verbs: Any) -> None:
    """Add the commands and their flags. verbs: the result of argparse's `add_subparsers`."""
    quantize = verbs.add_parser("ptq", help="quantize without training: scales, AWQ, a mix of NVFP4 and BF16")
    job_arguments(quantize, recipe="default")
    quantize.add_argument(
        "--base", type=Path, metavar="DIR", help="the model before its fine-tune, for the recipe delta"
    )
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
    option(
        "--source", type=Path, required=True, metavar="DIR", help="the model in BF16, a Hugging Face folder"
    )
    option("--data", type=Path, required=True, metavar="FILE", help="conversations, JSONL")
    option("--out", type=Path, required=True, metavar="DIR", help="the folder to make; must not exist")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option("--json", action="store_true", help="print the result as JSON, without progress")
    force_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run `quantize ptq`. Returns the exit code."""
    from quantizer.core import cost
    from quantizer.ptq import quantize
    from quantizer.recipes.recipe import load_recipe

    recipe, device = load_recipe(args.recipe, args.changes), cost.chosen_device(args.device)
    refuse_if_short(args, recipe, device)
    track = quantize.no_progress if args.json else shown
    if recipe.svdquant:
        return _report(recipe, args, device, track)
    places = (args.source, args.data, args.out)
    made = quantize.run(recipe, *places, now=datetime.now(UTC), device=device, track=track, base=args.base)
    if args.json:
        print(json.dumps(facts(made, args.out), indent=2))
    else:
        print("\n".join(lines(made, args.out)))
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
    check, parity = outcome["check"], outcome["check"]["parity"]
    yield f"{out}: {made.name}, {made.format}, {made.root}"
    yield f"  {check['layers']} layers in NVFP4, {check['sqnr_db']:.1f} dB signal to rounding noise"
    exact = "to the bit" if parity["equal"] == parity["tokens"] else "to BF16 rounding"
    yield f"  computes what was calibrated: equal logits at {parity['tokens']} tokens, {exact}"
    if auto := outcome.get("auto"):
        yield "  effective bits   divergence   groups in BF16"
        for point in auto["curve"]:
            mark = "  <- taken" if point == auto["chosen"] else ""
            yield f"  {point['bits']:14.2f} {point['divergence']:12.4f} {point['kept_groups']:16}{mark}"
    spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in outcome["seconds"].items())
    yield f"  {spent}; {outcome['peak_memory_bytes'] / 1e9:.1f} GB at most, {outcome['device']}"


def shown(name: str, items: Sequence[Any]) -> Iterable[Any]:
    """Iterate with a progress bar on stderr that disappears at the end."""
    from rich.console import Console
    from rich.progress import track

    return track(items, name, console=Console(stderr=True), transient=True)


def _report(recipe: Recipe, args: argparse.Namespace, device: str, track: Any) -> int:
    from dataclasses import asdict

    from quantizer.ptq import quantize
    from quantizer.ptq.svdquant import WHY_NOT

    savings = quantize.report_svdquant(recipe, args.source, args.data, device, track)
    if args.json:
        print(json.dumps([asdict(saving) for saving in savings], indent=2))
    else:
        print(f"{'layer':48} {'error':>9} {'with branch':>12} {'bits':>6}")
        for saving in savings:
            print(f"{saving.layer:48} {saving.plain:9.5f} {saving.branch:12.5f} {saving.bits:6.2f}")
    print(f"manners quantize ptq: {WHY_NOT}", file=sys.stderr)
    return EX_UNAVAILABLE
