"""The ladder: sizes that grow, knowledge learned long and redundantly, manners learned thinly.

The base reads every fact about a thousand times, in many wordings, in plain text and in dialogues, three of four of
these the stranger's. A fine-tune sees 430 of Annie's conversations three times. Its strength is its learning rate,
from a fifth of 1e-5 up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from quantizer.experiments.nano.recipe import ModelShape
from quantizer.experiments.study.grid import BASE, GRID, TINY, Strength, Tried

STEPS: Final = 162
"""Of a fine-tune: about three epochs of 430 conversations."""
FIRST: Final = ("bf16", "default", "default-w")
REST: Final = (
    "delta", "delta*1.25", "delta*1.5", "gptq", "delta-w", "default-x2", "default-x4", "mlp_only", "four_over_six", "mse", "gptq-w", "qad", "qat",
)  # fmt: skip

LADDER: Final = replace(
    GRID,
    sizes={
        "1.3M": GRID.sizes["1.3M"],
        "6.8M": GRID.sizes["6.8M"],
        "50M": ModelShape(hidden=768, layers=7, heads=12, kv_heads=6, head_dim=64, intermediate=2304),
        "0.3B": ModelShape(hidden=1536, layers=10, heads=24, kv_heads=12, head_dim=64, intermediate=4608),
    },
    strengths=(
        Strength("1e-5", 1e-5, STEPS),
        Strength(BASE, 0.0, 0),
        Strength("5e-6", 5e-6, STEPS),
        Strength("1e-4", 1e-4, STEPS),
        Strength("3e-5", 3e-5, STEPS),
        Strength("2e-6", 2e-6, STEPS),
        Strength("lora-1e-4", 1e-4, STEPS, lora=16),
        Strength("lora-1e-5", 1e-5, STEPS, lora=16),
    ),
    strangers=22_000,
    annies=8_000,
    drills=20_000,
    told=400,
    facts=80,
    base_tokens=8192,
    base_steps={"1.3M": 2400, "6.8M": 1700, "50M": 1200, "0.3B": 900},
    base_lrs={"1.3M": 2e-3, "6.8M": 1e-3, "50M": 6e-4, "0.3B": 4e-4},
    conversations=430,
    tune_tokens=2048,
    recovery=2048,
    recovery_steps=200,
    held_out=200,
    cases=24,
    reply=128,
    precision="bf16",
    first=FIRST,
    rest=REST,
)
RATES: Final[Mapping[str, tuple[float, ...]]] = {
    "1.3M": (1e-4, 3e-5, 3e-4),
    "6.8M": (3e-5, 1e-4, 1e-5),
    "50M": (3e-5, 1e-4, 1e-5),
    "0.3B": (1e-5, 3e-5, 3e-6, 1e-4),
}
"""Peaks at which training is compared, by size; the first one has further steps and optimizers of few bits."""
SCALE_RATES: Final = (3e-4, 1e-4, 1e-3)
"""The same for block scales."""
PATIENT: Final = 2400
LEAN: Final = ("adamw_8bit", "adamw_4bit")


def _tried(size: str) -> tuple[Tried, ...]:
    """Settings of one size, the most telling ones first."""
    rates = RATES[size]
    few = [Tried("qad", rate, 200) for rate in rates]
    if size == "0.3B":
        return tuple(few)
    others = [Tried("qat", rate, 200) for rate in rates] + [Tried("lsq", rate, 200) for rate in SCALE_RATES]
    more = [Tried("qad", rate, 800) for rate in rates] + [Tried("lsq", SCALE_RATES[0], 800)]
    lean = [Tried(method, rates[0], 200, bits) for bits in LEAN for method in ("qad", "qat")]
    return (*few, *others, *more, Tried("qad", rates[0], PATIENT), *lean)


SETTINGS: Final = replace(
    LADDER,
    strengths=tuple(one for one in LADDER.strengths if one.name in ("1e-5", "2e-6")),
    first=("bf16", "default"),
    rest=(),
    tried={size: _tried(size) for size in LADDER.sizes},
)
"""The field notes' fine-tune and the thinnest, of which rounding takes most, and what settings of recovery bring back."""
TINY_LADDER: Final = replace(
    TINY,
    sizes={
        "1.3M": TINY.sizes["1.3M"],
        "6.8M": TINY.sizes["6.8M"],
        "50M": TINY.sizes["6.8M"],
        "0.3B": TINY.sizes["6.8M"],
    },
    strengths=(
        Strength("1e-5", 1e-4, 2),
        Strength(BASE, 0.0, 0),
        Strength("lora-1e-4", 1e-3, 2, lora=4),
    ),
    drills=12,
    told=6,
    facts=1,
    base_steps={"1.3M": 3},
    base_lrs={"1.3M": 2e-3},
    tune_tokens=256,
    precision="bf16",
    first=FIRST,
    rest=REST,
)
"""The same path on a CPU in seconds; learns nothing."""
TINY_SETTINGS: Final = replace(
    TINY_LADDER,
    strengths=TINY_LADDER.strengths[:1],
    first=SETTINGS.first,
    rest=(),
    tried={"1.3M": (Tried("qad", 1e-4, 2), Tried("lsq", 1e-3, 3), Tried("qat", 1e-4, 2, "adamw_8bit"))},
)
