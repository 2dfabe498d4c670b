"""The study's grid: how big a model, how strong its fine-tune, what is done to it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quantizer.nano.recipe import Run, Shape

SIZES: Final = {
    "1.3M": Shape(hidden=128, layers=4, heads=4, kv_heads=2, head_dim=32, intermediate=384),
    "6.8M": Shape(),
}
BASE: Final = Run(conversations=60_000, epochs=3, tokens_per_step=32_768)
"""What every fine-tune begins from: it thinks aloud, writes markdown and names its tools in prose."""
STEP_TOKENS: Final = 8192
CONVERSATIONS: Final = 60_000
"""Annie's training conversations, of which a fine-tune takes as many as its steps need."""


@dataclass(frozen=True, slots=True)
class Strength:
    """A fine-tune of so many steps at a peak learning rate; `name` from thin to strong."""

    name: str
    lr: float
    steps: int


STRENGTHS: Final = (
    Strength("thinnest", 1e-5, 300),
    Strength("thin", 1e-5, 1000),
    Strength("light", 3e-5, 1000),
    Strength("medium", 1e-4, 600),
    Strength("firm", 3e-4, 1000),
    Strength("strong", 1e-3, 800),
)

ROUNDED: Final = ("default", "mlp_only", "awq_lite", "mse", "four_over_six")
"""Recipes without training."""
TRAINED: Final = ("qat", "qad", "lsq")
TRAIN_STEPS: Final = 150
TRAIN_CONVERSATIONS: Final = 2000
"""Of training conversations that recovery sees; calibration takes the first of them."""
CASES: Final = 40  # held-out lessons of each category; about 680 cases in all
