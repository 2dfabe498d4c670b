"""The study's grid: model sizes, strengths of fine-tunes, and methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from quantizer.experiments.nano.recipe import ModelShape
from quantizer.recipes.recipe import Train

FIRST: Final = ("bf16", "default", "qad", "qat")
"""Methods that every strength gets before any strength gets the others."""
REST: Final = ("mlp_only", "q4_k_m", "lsq", "four_over_six", "mse", "awq_lite")


BASE: Final = "base"
"""The name of a fine-tune without a step."""
ERRORS: Final = {"w": 1.0, "x2": 2.0, "x4": 4.0}
"""Ends of methods' names, after a hyphen: of the rounded weights alone, with inputs in BF16, and how many times the error
of rounding is in them. A number after a star is `feedback.strength`."""


@dataclass(frozen=True, slots=True)
class Strength:
    """A fine-tune with a number of steps and a peak learning rate. name: from thin to strong. lora: the rank of its
    adapters; 0 trains every weight. Without a step it is the base itself."""

    name: str
    lr: float
    steps: int
    lora: int = 0


@dataclass(frozen=True, slots=True)
class Tried:
    """Recovery with settings of its own. method: a key of `RATES`, whose other settings stay. lr: the peak. steps: of about
    `Grid.tokens` padded tokens. optimizer: as in `Train`."""

    method: str
    lr: float
    steps: int
    optimizer: Literal["adamw", "adamw_8bit", "adamw_4bit"] = "adamw"

    @property
    def name(self) -> str:
        """As the method of a cell."""
        return " ".join((self.method, f"{self.lr:g}", f"x{self.steps}", self.optimizer)).removesuffix(
            " adamw"
        )


@dataclass(frozen=True, slots=True)
class Grid:
    """All numbers of a study.

    strangers, annies: dialogues on which a base is trained, on every token, for `epochs` epochs. The base thus
    learns both styles and, decoded greedily, shows the more frequent one, as with large models, whose fine-tunes
    select behaviour more than they teach it. conversations: Annie's, for fine-tunes. recovery: Annie's, other ones,
    for calibration and recovery. cases: held-out dialogues of each category; prompts longer than `prompt` tokens
    are left out. held_out: dialogues on which the divergence from BF16 is measured. tokens: padded tokens per step
    of a fine-tune or a recovery.

    drills: rows of facts in plain text in the base's data. told, facts: held-out facts that are asked for in plain text,
    and further ones in dialogues. base_steps, base_lrs: by size, where they are not of
    `epochs` and `base_lr`. tune_tokens: padded tokens per step of a fine-tune; 0 is `tokens`. precision: of bases and
    fine-tunes. first, rest: the methods, in the order in which they are measured. tried: by size, settings of recovery that
    are compared after these, those with the fewest steps first.
    """

    sizes: dict[str, ModelShape]
    strengths: tuple[Strength, ...]
    seeds: tuple[int, ...] = (1, 2, 3)
    strangers: int = 54_000
    annies: int = 36_000
    epochs: int = 2
    base_lr: float = 1e-3
    base_tokens: int = 16_384
    conversations: int = 36_000
    recovery: int = 6_000
    held_out: int = 400
    cases: int = 40
    prompt: int = 576
    reply: int = 160
    tokens: int = 8192
    recovery_steps: int = 400
    drills: int = 0
    told: int = 0
    facts: int = 0
    base_steps: Mapping[str, int] = field(default_factory=dict)
    base_lrs: Mapping[str, float] = field(default_factory=dict)
    tune_tokens: int = 0
    precision: Literal["autocast", "bf16"] = "autocast"
    first: tuple[str, ...] = FIRST
    rest: tuple[str, ...] = REST
    tried: Mapping[str, tuple[Tried, ...]] = field(default_factory=dict)


DATA: Final = 100_000
"""Index of the first recovery dialogue among Annie's; fine-tunes take the first ones."""

STRENGTHS: Final = (
    Strength("faint", 3e-6, 100),
    Strength("thinnest", 1e-5, 100),
    Strength("thin", 1e-5, 300),
    Strength("light", 3e-5, 400),
    Strength("medium", 1e-4, 600),
    Strength("firm", 3e-4, 1000),
    Strength("strong", 1e-3, 1000),
)

GRID: Final = Grid(
    sizes={
        "1.3M": ModelShape(hidden=128, layers=4, heads=4, kv_heads=2, head_dim=32, intermediate=384),
        "6.8M": ModelShape(),
    },
    strengths=STRENGTHS,
)
TINY: Final = replace(
    GRID,
    sizes={
        "1.3M": ModelShape(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, intermediate=128),
        "6.8M": ModelShape(hidden=128, layers=2, heads=2, kv_heads=1, head_dim=64, intermediate=256),
    },
    strengths=(Strength("thinnest", 1e-4, 2), Strength("strong", 1e-3, 3)),
    seeds=(1,),
    strangers=12,
    annies=6,
    epochs=1,
    base_tokens=1024,
    conversations=16,
    recovery=10,
    held_out=4,
    cases=1,
    prompt=200,
    reply=8,
    tokens=512,
    recovery_steps=2,
)
"""The same path on a CPU in seconds; learns nothing."""

METHODS: Final = (
    "bf16", "default", "mlp_only", "awq_lite", "mse", "four_over_six", "qat", "qad", "lsq", "q4_k_m",
)  # fmt: skip
"""All methods, in the order of the table."""

_BRISK: Final = Train(warmup=0.05, floor=0.1, betas=(0.9, 0.95), refresh=50, compile=False)
_SLOW: Final = replace(_BRISK, floor=0.01, betas=(0.9, 0.99))
_GENTLE: Final = {
    "qat": replace(_SLOW, loss="ce", lr=5e-5),
    "qad": replace(_SLOW, loss="kl", lr=1e-4),
    "lsq": replace(_SLOW, loss="kl", lr=3e-4, trained="scales"),
}


def _low_bit(optimizer: Literal["adamw_8bit", "adamw_4bit"]) -> dict[str, Train]:
    """The gentle rates, of weights, with an optimizer of few bits."""
    return {
        name: train if train.trained == "scales" else replace(train, optimizer=optimizer)
        for name, train in _GENTLE.items()
    }


FIRST_RATES: Final = "brisk"
_FIRST: Final = {
    "qat": replace(_BRISK, loss="ce", lr=1e-4),
    "qad": replace(_BRISK, loss="kl", lr=3e-4),
    "lsq": replace(_BRISK, loss="kl", lr=2e-4, trained="scales"),
}
RATES: Final = {
    FIRST_RATES: _FIRST,
    "brisk-again": _FIRST,
    "gentle": _GENTLE,
    "patient": _GENTLE,
    "settings": _GENTLE,
    "gentle-8bit": _low_bit("adamw_8bit"),
    "gentle-4bit": _low_bit("adamw_4bit"),
}
"""Learning rates of recovery training.

The recipes' 1e-5 is meant for models a thousand times as large, and hardly changes these in so few steps. But where
the divergence is small, its gradients are noise, and Adam makes full-size steps from them: eight steps of 512
tokens at 3e-4 raised annie-nano's divergence from 0.00006 to 0.05 nats, where LSQ at 5e-4 halved it. So the gentle
rates decay to a hundredth. "brisk-again" repeats the first rates for cells that a first run left out: its
fine-tunes are gone, and the new ones get rows of their own.
"""
PATIENCE: Final = {"patient": 6}
"""Factor by which some rates multiply the grid's steps of recovery and its dialogues."""
COMPARED: Final = ("bf16", "default")
"""Methods that every run measures, whatever else is requested, so that losses and recoveries refer to the same
models."""
