"""Sensitivity scores: how much the model's output changes when one group of layers alone is quantized.

The score is the divergence KL(BF16 || NVFP4 in this group) of the next-token distributions, summed over the tokens
that the assistant wrote in the scored conversations, because they show how the model behaves. The reference takes
one forward pass; each group then takes one more for each batch, which starts at the group's own decoder layer,
since nothing before it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.core.batch import Batch, assistant_logits
from quantizer.core.errors import DataError
from quantizer.layers.attach import detach
from quantizer.layers.linear import drop_weights, hold_weights, nvfp4_layers, unquantized
from quantizer.ptq.knapsack import LayerGroup, PrecisionMix

Groups = Sequence[tuple[str, ...]]


@torch.no_grad()
def score(
    model: nn.Module,
    groups: Groups,
    batches: Sequence[Batch],
    track: Callable[[Sequence[tuple[str, ...]]], Iterable[tuple[str, ...]]] = iter,
) -> list[LayerGroup]:
    """The divergence that each group causes alone, in the given order.

    model: calibrated, with block scales. Raises DataError if the batches contain no token of the assistant.
    """
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
        self.model, self.batch = model, batch.to(next(model.parameters()).device)
        self.layers = list(model.get_submodule("model.layers").children())
        self.read: dict[int, Tensor] = {}
        hooks = [layer.register_forward_pre_hook(self._remember(i)) for i, layer in enumerate(self.layers)]
        try:
            self.reference = F.log_softmax(assistant_logits(model, self.batch).float(), dim=-1)
        finally:
            for hook in hooks:
                hook.remove()

    def divergence(self, group: tuple[str, ...]) -> float:
        """The summed KL divergence of the model as it is now from the reference. group: the layers that have
        changed."""
        first = min(int(name.split("layers.", 1)[1].split(".", 1)[0]) for name in group)
        with _from_layer(self.model, first, self.read[first]):
            logits = assistant_logits(self.model, self.batch).float()
        return float(
            F.kl_div(F.log_softmax(logits, dim=-1), self.reference, reduction="sum", log_target=True)
        )

    def _remember(self, index: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(layer: nn.Module, args: tuple[Any, ...]) -> None:
            self.read[index] = args[0]

        return look


class _Skipped(nn.Module):
    """Replaces a decoder layer whose output is already known."""

    def forward(self, hidden: Tensor, *args: Any, **more: Any) -> Tensor:
        return hidden


@contextmanager
def _from_layer(model: nn.Module, first: int, hidden: Tensor) -> Iterator[None]:
    """Within a `with` block, the model starts at a decoder layer with the input recorded for it."""
    layers = model.get_submodule("model.layers")
    assert isinstance(layers, nn.ModuleList)
    whole = list(layers)
    hook = whole[first].register_forward_pre_hook(lambda layer, args: (hidden, *args[1:]))
    try:
        for index in range(first):
            layers[index] = _Skipped()
        yield
    finally:
        hook.remove()
        for index in range(first):
            layers[index] = whole[index]
