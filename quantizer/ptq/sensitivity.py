"""Sensitivity scores: how much the model's output changes when one group of layers alone is quantized.

The score is KL(BF16 || NVFP4 in this group) of the next-token distributions, summed over the assistant's tokens. A group's pass
starts at its own decoder layer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.core.batch import Batch
from quantizer.core.decoder import decoder_layers, head, logit_scale
from quantizer.core.errors import DataError
from quantizer.core.layerwise import Layerwise
from quantizer.layers.attach import detach
from quantizer.layers.linear import drop_weights, hold_weights, nvfp4_layers, unquantized
from quantizer.layers.selection import layer_index
from quantizer.ptq.knapsack import LayerGroup, PrecisionMix

Groups = Sequence[tuple[str, ...]]


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


def keep_in_bf16(model: nn.Module, groups: Groups, mix: PrecisionMix) -> tuple[str, ...]:
    """Replace the groups that a mix keeps in BF16 by plain layers. Returns their names."""
    names = tuple(name for index in mix.kept for name in groups[index])
    detach(model, names)
    return names


class _Pass:
    """A batch after a pass through the unquantized model: the input of each decoder layer, and the output."""

    def __init__(self, model: nn.Module, batch: Batch) -> None:
        self.head, self.batch = head(model), batch.to(next(model.parameters()).device)
        self.scale = logit_scale(model)
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
        logits: Tensor = self.head(hidden[self.batch.loss_mask]) * self.scale
        return F.log_softmax(logits.float(), dim=-1)
