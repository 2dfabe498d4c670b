"""`manners quantize qat`, `qad` and `sft`: training, with the quantization in place or without."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quantizer.cli.plan import refuse_if_short
from quantizer.cli.ptq import facts, job_arguments, proof_lines, spent
from quantizer.core.errors import RecipeError, SourceError

if TYPE_CHECKING:
    from gates.artefact.artefact import Artefact
    from quantizer.recipes.recipe import Recipe

VERBS: Final = {
    "qat": ("train the quantized model on conversations (cross entropy)", ("ce",), True),
    "qad": (
        "bring the quantized model back to its own BF16 (divergence); learned scales too",
        ("kl", "mix"),
        True,
    ),
    "sft": ("fine-tune in BF16, without quantization", ("ce",), False),
}
"""A verb: its help, the losses of its recipes, and whether they quantize. Its first recipe has its name."""


def add(verbs: Any) -> None:
    """The commands' flags. verbs: of argparse's `add_subparsers`."""
    for name, (words, _, quantized) in VERBS.items():
        parser = verbs.add_parser(name, help=words, description=words)
        job_arguments(parser, recipe=name)
        if quantized:
            parser.add_argument("--bf16", type=Path, metavar="DIR",
                                help="write the trained weights before their rounding there too, as for a GGUF")  # fmt: skip
        parser.set_defaults(part=run, bf16=None)


def run(args: argparse.Namespace) -> int:
    """One of them; the exit code."""
    from quantizer.checkpoint.from_gguf import as_folder
    from quantizer.core import cost, shard
    from quantizer.data.render import read_template
    from quantizer.recipes.recipe import load_recipe
    from quantizer.train import run as training

    recipe = load_recipe(args.recipe, args.changes)
    _check(args.verb, recipe)
    device = cost.chosen_device(args.device)
    template = read_template(args.template)
    try:
        with as_folder(args.source, args.out, args.base) as folder:
            if args.base and folder == args.source:
                raise SourceError(f"{args.source} is no adapter: leave --base out")
            args.source = folder
            refuse_if_short(args, recipe, device)
            made = training.run(
                recipe,
                args.source,
                args.data,
                args.out,
                now=datetime.now(UTC),
                device=device,
                resume=args.resume,
                bf16=args.bf16,
                template=template,
                proof=args.proof,
                log=(lambda text: None) if args.json else partial(print, file=sys.stderr, flush=True),
            )
    finally:
        shard.leave()
    if not shard.first():
        return 0
    print(json.dumps(facts(made, args.out), indent=2) if args.json else "\n".join(lines(made, args.out)))
    return 0


def _check(verb: str, recipe: Recipe) -> None:
    """Raises RecipeError for a recipe of another verb: who says qad must not get a qat."""
    settings = recipe.train
    if settings is None:
        raise RecipeError(f"{recipe.name} trains nothing: run it with manners quantize ptq")
    for name, (_, losses, quantized) in VERBS.items():
        if settings.loss in losses and settings.quantized == quantized:
            if name != verb:
                raise RecipeError(f"{recipe.name} is a recipe for manners quantize {name}, not {verb}")
            return
    raise RecipeError(
        f'{recipe.name}: without quantization train.loss can only be "ce"; a model is its own teacher'
    )


def lines(made: Artefact, out: Path) -> Iterable[str]:
    """What a person wants to know of a result."""
    outcome = made.provenance.recipe["outcome"]
    train, check = outcome["train"], outcome.get("check")
    yield f"{out}: {made.name}, {made.format}, {made.root}"
    yield (
        f"  {train['steps']} steps, loss {train['first_loss']:.4f} to {train['last_loss']:.4f}, "
        f"{train['tokens_per_second']:,.0f} tokens/s"
    )
    if check:
        yield from proof_lines(check, "trained")
    yield spent(outcome)
