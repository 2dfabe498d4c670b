"""Choose the groups that stay in BF16: the largest divergence for each weight first, within a number of bits.

That effects add up is an assumption, so an exact solution would be no better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantizer.recipes.recipe import BF16_BITS, NVFP4_BITS


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


def solve(groups: Sequence[LayerGroup], budget: float) -> PrecisionMix:
    """The mix for a budget of average bits."""
    spare = (budget - NVFP4_BITS) / (BF16_BITS - NVFP4_BITS) * sum(group.weights for group in groups)
    kept = []
    for index in sorted(range(len(groups)), key=lambda i: -groups[i].divergence / groups[i].weights):
        if groups[index].divergence > 0 and groups[index].weights <= spare + 1e-6:
            kept.append(index)
            spare -= groups[index].weights
    rest = sum(max(0.0, group.divergence) for index, group in enumerate(groups) if index not in kept)
    return PrecisionMix(tuple(sorted(kept)), bits_of(groups, kept), rest)


def point_as_json(mix: PrecisionMix, groups: Sequence[LayerGroup]) -> Mapping[str, float | int]:
    """A solution as JSON values."""
    weights = sum(groups[index].weights for index in mix.kept)
    return {
        "bits": round(mix.bits, 4),
        "divergence": mix.divergence,
        "kept_groups": len(mix.kept),
        "kept_weights": weights,
    }
