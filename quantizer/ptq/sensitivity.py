"""A mix of precisions, by sensitivity: how much the model's output changes when one group of layers alone is quantized.

The score is KL(BF16 || NVFP4 in this group) of the next-token distributions, summed over the assistant's tokens. A group's pass
starts at its own decoder layer. The groups with the largest divergence for each weight stay in BF16, within a number of bits: that
effects add up is an assumption, so an exact solution would be no better.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.core.batch import Batch
from quantizer.core.decoder import decoder_layers, logits
from quantizer.core.errors import DataError
from quantizer.core.layerwise import Layerwise
from quantizer.layers.linear import drop_weights, hold_weights, nvfp4_layers, unquantized
from quantizer.layers.selection import layer_index
from quantizer.recipes.recipe import BF16_BITS, NVFP4_BITS

Groups = Sequence[tuple[str, ...]]


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


@torch.no_grad()
def score(
    model: nn.Module,
    groups: Groups,
    batches: Sequence[Batch],
    track: Callable[[Sequence[tuple[str, ...]]], Iterable[tuple[str, ...]]] = iter,
) -> list[LayerGroup]:
    """The divergence that each group causes alone, in the given order. Raises DataError without a token of the assistant."""
    layers, found = nvfp4_layers(model), []
    if not any(bool(batch.loss_mask.any()) for batch in batches):
        raise DataError("auto: no token of the assistant's in the scored conversations")
    hold_weights(model)
    with unquantized(model):
        passes = [_Pass(model, batch) for batch in batches]
        for group in track(groups):
            for name in group:
                layers[name].active = True
            divergence = sum(one.divergence(group) for one in passes)
            found.append(LayerGroup(group, sum(layers[name].weight.numel() for name in group), divergence))
            for name in group:
                layers[name].active = False
    drop_weights(model)
    return found


class _Pass:
    """A batch after a pass through the unquantized model: the input of each decoder layer, and the output."""

    def __init__(self, model: nn.Module, batch: Batch) -> None:
        self.model, self.batch = model, batch.to(next(model.parameters()).device)
        self.run = Layerwise(model, [self.batch])
        self.layers = range(len(decoder_layers(model)))
        self.read = [self.run.hidden[0]]
        for index in self.layers:
            deque(self.run.advance(index), maxlen=0)
            self.read.append(self.run.hidden[0])
        self.reference = self._logits()

    def divergence(self, group: tuple[str, ...]) -> float:
        """The summed KL divergence of the model as it is now from the reference. group: the layers that have
        changed."""
        first = min(index for name in group if (index := layer_index(name)) is not None)
        self.run.hidden[0] = self.read[first]
        for index in self.layers[first:]:
            deque(self.run.advance(index), maxlen=0)
        return float(F.kl_div(self._logits(), self.reference, reduction="sum", log_target=True))

    def _logits(self) -> Tensor:
        """Of the tokens of the assistant, as logarithms: float32 [assistant tokens, vocabulary]."""
        hidden = self.run.finish(0)[:, :-1]
        return F.log_softmax(logits(self.model, hidden[self.batch.loss_mask]).float(), dim=-1)
