"""Which groups stay in BF16: the least divergence that a number of bits can buy. Pure.

A group costs its weights times the bits that BF16 has more than NVFP4, and is worth the divergence that quantizing it
alone made. That is the 0/1 knapsack, solved exactly over units of weights: the greatest common divisor of all sizes,
or, where that would make too large a table, a coarser unit that rounds sizes up and so never spends too much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from quantizer.recipes.recipe import BF16_BITS, NVFP4_BITS

MAX_UNITS: Final = 2**17
"""Length of the table; with 200 groups it takes 27 MB and a fraction of a second."""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that are quantized together or not at all. weights: how many. divergence: of the model with this group
    alone in NVFP4, summed over scored tokens."""

    layers: tuple[str, ...]
    weights: int
    divergence: float


@dataclass(frozen=True, slots=True)
class Mix:
    """A solution. kept: indices of the groups in BF16. bits: on average over all weights. divergence: summed over the
    groups in NVFP4, as if their harms added up."""

    kept: tuple[int, ...]
    bits: float
    divergence: float


def bits_of(groups: Sequence[Group], kept: Sequence[int]) -> float:
    """Effective bits of a weight with these groups in BF16."""
    total = sum(group.weights for group in groups)
    whole = sum(groups[index].weights for index in kept)
    return NVFP4_BITS + (BF16_BITS - NVFP4_BITS) * whole / total


def solve(groups: Sequence[Group], budgets: Sequence[float]) -> list[Mix]:
    """The best mix under each budget of effective bits, from one table."""
    sizes, unit = _units(groups)
    capacity = sum(sizes)
    saved, taken = np.zeros(capacity + 1), np.zeros((len(groups), capacity + 1), dtype=bool)
    for index, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        worth = max(0.0, group.divergence)
        with_it = np.concatenate([np.full(size, -1.0), saved[: capacity + 1 - size] + worth])
        taken[index] = with_it > saved
        saved = np.maximum(saved, with_it)
    total = sum(group.weights for group in groups)
    mixes = []
    for budget in budgets:
        spare = (budget - NVFP4_BITS) / (BF16_BITS - NVFP4_BITS) * total
        kept = _walk_back(taken, sizes, min(capacity, math.floor(spare / unit + 1e-9)))
        mixes.append(_mix(groups, kept))
    return mixes


def curve(groups: Sequence[Group], step: float = 0.5) -> list[Mix]:
    """Bits against divergence from all NVFP4 to all BF16; each point better than the one before it in divergence."""
    count = int((BF16_BITS - NVFP4_BITS) / step)
    points: list[Mix] = []
    for mix in solve(groups, [NVFP4_BITS + step * index for index in range(count)] + [BF16_BITS]):
        if not points or mix.divergence < points[-1].divergence:
            points.append(mix)
    return points


def as_row(mix: Mix, groups: Sequence[Group]) -> Mapping[str, float | int]:
    """A point of the curve as JSON values."""
    weights = sum(groups[index].weights for index in mix.kept)
    return {
        "bits": round(mix.bits, 4),
        "divergence": mix.divergence,
        "kept_groups": len(mix.kept),
        "kept_weights": weights,
    }


def _units(groups: Sequence[Group]) -> tuple[list[int], int]:
    unit = math.gcd(*(group.weights for group in groups))
    total = sum(group.weights for group in groups)
    if total // unit > MAX_UNITS:
        unit = -(-total // MAX_UNITS)
    return [-(-group.weights // unit) for group in groups], unit


def _walk_back(taken: np.ndarray, sizes: Sequence[int], room: int) -> tuple[int, ...]:
    kept = []
    for index in reversed(range(len(sizes))):
        if taken[index, room]:
            kept.append(index)
            room -= sizes[index]
    return tuple(sorted(kept))


def _mix(groups: Sequence[Group], kept: tuple[int, ...]) -> Mix:
    rest = sum(max(0.0, group.divergence) for index, group in enumerate(groups) if index not in kept)
    return Mix(kept, bits_of(groups, kept), rest)
