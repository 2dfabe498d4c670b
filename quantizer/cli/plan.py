"""`manners quantize plan --recipe R --source DIR`: what a job takes, and the same check in the jobs.

Exit code 0: it fits. 1: it does not fit here. 2: this machine's memory is not known.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from quantizer.plan.machine import Machine
    from quantizer.plan.memory import DataSize
    from quantizer.plan.model import PlannedModel
    from quantizer.plan.resources import ResourcePlan
    from quantizer.recipes.recipe import Recipe

WORDS: Final = (
    "say what a recipe takes on a model: memory by part, disk and time; exit code 1 if it does not fit"
)
EXIT_CODES: Final = {True: 0, False: 1, None: 2}
CHARACTERS: Final = 3
"""Bytes of a file of conversations for a token, with what the template adds and repeats. An estimate."""
MOST_PROCESSES: Final = 1024
MOST_LINES: Final = 1_000_000
"""Lines of a file of conversations that are counted."""


def add(verbs: Any) -> None:
    """Add the command and its flags. verbs: the result of argparse's `add_subparsers`."""
    parser = verbs.add_parser("plan", help=WORDS, description=WORDS)
    option = parser.add_argument
    option(
        "--recipe", default="default", metavar="R", help="a shipped recipe or a .toml (default: %(default)s)"
    )
    option("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE",
           help="change one value of the recipe; may be repeated")  # fmt: skip
    option("--source", type=Path, required=True, metavar="DIR",
           help="the model in BF16; only config.json and the shards' headers are read")  # fmt: skip
    option("--data", type=Path, metavar="FILE", help="conversations, for the time that it takes")
    option("--out", type=Path, metavar="DIR", help="where the result is to go, for the disk (default: here)")
    option("--device", metavar="D", help="a torch device (default: a GPU if there is one)")
    option(
        "--machine", metavar="NAME", help="plan for another machine: spark, h100, h200 (default: this one)"
    )
    option("--processes", type=int, metavar="N", help="processes that share a training, with such a GPU each")
    option("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(part=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan. Returns the exit code. Raises QuantizerError."""
    from quantizer.core.errors import SourceError
    from quantizer.plan.model import read_model
    from quantizer.plan.resources import plan
    from quantizer.recipes.recipe import load_recipe

    recipe, model = load_recipe(args.recipe, args.changes), read_model(args.source)
    if model.packed:
        raise SourceError(
            f"{args.source}: is quantized already; plan with the BF16 model that it was made from"
        )
    machine = _machine(args)
    made = plan(model, recipe, machine, _size(args.data))
    print(json.dumps(made.as_json(), indent=2) if args.json else "\n".join(lines(made)))
    return EXIT_CODES[made.fits]


def refuse_if_short(args: argparse.Namespace, recipe: Recipe, device: str) -> None:
    """The check before a job. Raises ResourceError if memory or disk are short."""
    from quantizer.plan.resources import plan

    def why(model: PlannedModel, machine: Machine) -> str:
        bf16 = getattr(args, "bf16", None) is not None
        return plan(model, recipe, machine, _size(args.data), bf16=bf16).why

    _refuse(args, args.source, device, why)


def refuse_gguf_if_short(args: argparse.Namespace) -> None:
    """The check before a GGUF file is written. Raises ResourceError if memory or disk are short."""
    from quantizer.plan.resources import gguf_shortage

    _refuse(args, args.folder, "cpu", lambda model, machine: gguf_shortage(model, args.kind, machine))


def _refuse(
    args: argparse.Namespace, source: Path, device: str, why: Callable[[PlannedModel, Machine], str]
) -> None:
    """Faults of the source or the recipe are left to the job to report."""
    from quantizer.core.errors import RecipeError, ResourceError, SourceError
    from quantizer.plan.machine import read_machine
    from quantizer.plan.model import read_model

    if args.force:
        return
    try:
        reason = why(read_model(source), read_machine(args.read_host, args.out, device))
    except (OSError, RecipeError, SourceError):
        return
    if reason:
        raise ResourceError(f"{reason}; --force runs it nevertheless")


def force_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag that skips the check."""
    parser.add_argument(
        "--force", action="store_true", help="run even if the plan says that memory or disk is too small"
    )


def lines(made: ResourcePlan) -> Iterable[str]:
    """The plan as text, for a person."""
    model = made.model
    kinds = f"{model.attention_layers} layers of attention"
    kinds += f", {model.deltanet_layers} of DeltaNet" if model.deltanet_layers else ""
    yield f"{made.recipe.name} on {model.parameters / 1e9:.2f} B parameters ({model.kind}: {kinds}), {made.machine.name}"
    for phase in made.phases:
        yield f"  {phase.name:<10} {_gib(phase.on_device)} on the device: {_parts(phase.device)}"
        yield f"  {'':<10} {_gib(phase.on_host)} on the host: {_parts(phase.host)}"
    yield f"  {'disk':<10} {_gib(sum(made.disk.values()))}: {_parts(made.disk)}"
    if made.seconds is not None:
        yield f"  {'time':<10} about {sum(made.seconds.values()):,.0f} s: " + ", ".join(
            f"{name} {seconds:,.0f}" for name, seconds in made.seconds.items()
        )
    for place, size in made.needed.items():
        there = made.available.get(place)
        yield f"  {place:<10} {_gib(size)} needed" + (
            "" if there is None else f", {_gib(there)} can be taken"
        )
    yield {True: "fits", False: f"does not fit: {made.advice}", None: "not known whether it fits"}[made.fits]


def _machine(args: argparse.Namespace) -> Machine:
    from quantizer.core.cost import chosen_device
    from quantizer.core.errors import RecipeError
    from quantizer.plan.machine import NAMED, read_machine

    if args.machine is None:
        made = read_machine(args.read_host, args.out or Path.cwd(), chosen_device(args.device))
    elif args.machine in NAMED:
        made = NAMED[args.machine]
    else:
        raise RecipeError(f"--machine {args.machine}: known are {', '.join(NAMED)}")
    if args.processes is None:
        return made
    if not 1 <= args.processes <= MOST_PROCESSES:
        raise RecipeError(f"--processes {args.processes}: must be from 1 to {MOST_PROCESSES}")
    return replace(made, processes=args.processes)


def _size(path: Path | None) -> DataSize | None:
    """Conversations of a file, and about how many tokens they have."""
    import os

    from quantizer.data.conversation import opened
    from quantizer.plan.memory import DataSize

    if path is None:
        return None
    with opened(path) as file:
        count = sum(1 for _, line in zip(range(MOST_LINES), file, strict=False) if line.strip())
        return DataSize(count, file.seek(0, os.SEEK_END) // CHARACTERS)


def _parts(parts: Any) -> str:
    return ", ".join(f"{name} {size / 2**30:.1f}" for name, size in parts.items() if size)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
