"""Choose the groups that stay in BF16: the smallest divergence for a given number of bits.

A group's cost is its number of weights times the bits that BF16 has more than NVFP4; its value is the divergence
that quantizing it alone causes. This is the 0/1 knapsack problem. It is solved exactly in units of weights: the
greatest common divisor of all sizes, or, if the table would become too large, a coarser unit that rounds sizes up
and therefore never exceeds the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from quantizer.recipes.recipe import BF16_BITS, NVFP4_BITS

MAX_UNITS: Final = 2**17
"""Length of the table. With 200 groups it takes 27 MB and a fraction of a second."""


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that are quantized together or not at all. weights: their number. divergence: of the model with only
    this group in NVFP4, summed over the scored tokens."""

    layers: tuple[str, ...]
    weights: int
    divergence: float


@dataclass(frozen=True, slots=True)
class PrecisionMix:
    """A solution. kept: indices of the groups in BF16. bits: average over all weights. divergence: sum over the
    groups in NVFP4, under the assumption that their effects add up."""

    kept: tuple[int, ...]
    bits: float
    divergence: float


def bits_of(groups: Sequence[LayerGroup], kept: Sequence[int]) -> float:
    """Average bits of a weight with these groups in BF16."""
    total = sum(group.weights for group in groups)
    whole = sum(groups[index].weights for index in kept)
    return NVFP4_BITS + (BF16_BITS - NVFP4_BITS) * whole / total


def solve(groups: Sequence[LayerGroup], budgets: Sequence[float]) -> list[PrecisionMix]:
    """The best mix for each budget of average bits, all from one table."""
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


def curve(groups: Sequence[LayerGroup], step: float = 0.5) -> list[PrecisionMix]:
    """Bits against divergence, from all NVFP4 to all BF16; each point has a smaller divergence than the one before
    it."""
    count = int((BF16_BITS - NVFP4_BITS) / step)
    points: list[PrecisionMix] = []
    for mix in solve(groups, [NVFP4_BITS + step * index for index in range(count)] + [BF16_BITS]):
        if not points or mix.divergence < points[-1].divergence:
            points.append(mix)
    return points


def point_as_json(mix: PrecisionMix, groups: Sequence[LayerGroup]) -> Mapping[str, float | int]:
    """A point of the curve as JSON values."""
    weights = sum(groups[index].weights for index in mix.kept)
    return {
        "bits": round(mix.bits, 4),
        "divergence": mix.divergence,
        "kept_groups": len(mix.kept),
        "kept_weights": weights,
    }


def _units(groups: Sequence[LayerGroup]) -> tuple[list[int], int]:
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


def _mix(groups: Sequence[LayerGroup], kept: tuple[int, ...]) -> PrecisionMix:
    rest = sum(max(0.0, group.divergence) for index, group in enumerate(groups) if index not in kept)
    return PrecisionMix(kept, bits_of(groups, kept), rest)
