"""`python -m quantizer.study --base DIR --out DIR --seed 1`: what NVFP4 takes from a pretrained model, and what brings it back.

The base is fine-tuned, thinly to strongly, rounded in each way, and measured: a row for each cell in DIR/seed1.jsonl.
`python -m tests.study` makes the page's tables and picture from the rows.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from quantizer.checkpoint.source import load_model, open_source
from quantizer.core.cost import chosen_device
from quantizer.data import conversation
from quantizer.data.render import open_renderer
from quantizer.ptq import quantize
from quantizer.recipes.recipe import load_recipe
from quantizer.reference.model import reference_model
from quantizer.study import measure
from quantizer.train import run as training

SETS: Final = Path(__file__).parents[1] / "data" / "sets" / "voice"
ORDINARY: Final = "5e-5"
STRENGTHS: Final = (ORDINARY, "1e-5", "3e-5", "1e-4", "2e-4")
"""Peak learning rates of the fine-tune, of three epochs."""
NUMERICS: Final = ("W4A16", "W4A4")


Way = tuple[str, str, tuple[str, ...]]
"""A way to make an NVFP4 folder: a name, a recipe, and its changes."""


def trained(verb: str, lr: str, epochs: int) -> Way:
    """A training of so many epochs at this peak rate."""
    return f"{verb} {lr} x{epochs}", verb, (f"train.lr={lr}", f"train.epochs={epochs}")


EVERYWHERE: Final[tuple[Way, ...]] = (("default", "default", ()), trained("qad", "1e-4", 2))
WAYS: Final[tuple[Way, ...]] = (
    *((name, name, ()) for name in ("gptq", "delta", "awq_lite", "mse", "four_over_six", "mlp_only")),
    ("auto 5 bits", "auto_mixed", ("auto.effective_bits=5.0",)),
    *(trained("qad", lr, epochs) for lr, epochs in (("1e-5", 2), ("3e-5", 2), ("1e-4", 1), ("3e-4", 2))),
    *(trained("qat", lr, epochs) for lr, epochs in (("1e-5", 1), ("1e-4", 2))),
)
"""At the ordinary strength alone."""


class Study:
    """One seed's cells."""

    def __init__(self, base: Path, out: Path, seed: int, device: str) -> None:
        self.base, self.device, self.seed = base, device, seed
        self.rows, self.work = out / f"seed{seed}.jsonl", out / f"seed{seed}"
        self.work.mkdir(parents=True)
        self.data = self.work / "conversations.jsonl"
        every = [line for _, line in conversation.lines(SETS / "conversations.jsonl.xz")]
        random.Random(0).shuffle(every)  # calibration takes the beginning, and the file is sorted by kind
        self.data.write_bytes(b"\n".join(every) + b"\n")
        self.renderer = open_renderer(base)
        self.facts = measure.facts(self.renderer)
        self.questions = [*measure.turns(self.renderer, SETS / "held_out.jsonl.xz"), *self.facts]
        self.prose = measure.prose(self.renderer)

    def strength(self, lr: str, ways: Sequence[Way]) -> None:
        """The rows of a fine-tune at this peak rate and of what each way makes of it."""
        tuned = self._made("sft", (f"train.lr={lr}",), self.base, f"sft-{lr}")
        model = load_model(open_source(tuned), device=self.device)
        said = measure.replies(model, self.questions, self.renderer)
        reference = measure.refer(model, self.questions, said, self.prose, self.renderer.pad)
        self._row((lr, "bf16", "BF16"), model, reference)
        for name, recipe, changes in ways:
            made = self._made(recipe, changes, tuned, f"{name}-{lr}")
            for kind in NUMERICS:
                model = reference_model(made, self.device, weight_only=kind == "W4A16")
                self._row((lr, name, kind), model, reference)
            shutil.rmtree(made)

    def _made(self, recipe: str, changes: Sequence[str], source: Path, name: str) -> Path:
        """The folder that a recipe makes of another. Without a compiler, whose minute is longer than what it saves here."""
        made, where = self.work / name, {"now": datetime.now(UTC), "device": self.device}
        if recipe in ("sft", "qat", "qad"):
            more = (*changes, f"train.seed={self.seed}", "train.compile=false")
            training.run(load_recipe(recipe, more), source, self.data, made, **where)  # type: ignore[arg-type]
        else:
            base = self.base if recipe == "delta" else None
            quantize.run(load_recipe(recipe, changes), source, self.data, made, base=base, **where)  # type: ignore[arg-type]
        return made

    def _row(self, cell: tuple[str, str, str], model: Any, reference: measure.Reference) -> None:
        said = measure.replies(model, self.questions, self.renderer)
        row: dict[str, Any] = dict(zip(("seed", "lr", "way", "numerics"), (self.seed, *cell), strict=True))
        row |= measure.judged(self.questions, said, self.renderer)
        row["four"] = measure.chosen(model, self.facts, self.renderer.pad)
        row |= measure.compared(model, reference, self.renderer.pad)
        with self.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        print(*cell, {name: row[name].count("1") for name in ("exact", "speech", "said", "four")}, flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m quantizer.study", description=__doc__)
    option = parser.add_argument
    option("--base", type=Path, required=True, help="a BF16 folder whose template renders tools")
    option("--out", type=Path, required=True, help="the folder of rows, fine-tunes, and what is made of them")
    option("--seed", type=int, default=1, help="of the trainings (%(default)s)")
    given = parser.parse_args()
    study = Study(given.base, given.out, given.seed, chosen_device(None))
    for lr in STRENGTHS:
        study.strength(lr, (*EVERYWHERE, *(WAYS if lr == ORDINARY else ())))


if __name__ == "__main__":
    main()
