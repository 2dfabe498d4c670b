"""What an optimizer moves: float32 masters behind the weights that a model computes with.

A weight in BF16 has eight bits; a step of 1e-5 of its size would be rounded away every time. So the steps go to a
master in float32, and the model's weight is the master, rounded. Gradients of micro-batches add up in float32 too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from quantizer.recipes.recipe import Train


class Weights:
    """The trained parameters of a model by name, and their masters. A float32 parameter is its own master."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]]) -> None:
        self.model = dict(named)
        self.masters = {
            name: p if p.dtype == torch.float32 else nn.Parameter(p.detach().float())
            for name, p in self.model.items()
        }
        self._rounded = [name for name, p in self.model.items() if self.masters[name] is not p]

    @torch.no_grad()
    def collect(self) -> None:
        """Move the gradients of a backward pass to the masters, to what is there already."""
        for name in self._rounded:
            parameter, master = self.model[name], self.masters[name]
            if parameter.grad is None:
                continue
            if master.grad is None:
                master.grad = parameter.grad.float()
            else:
                master.grad += parameter.grad
            parameter.grad = None

    @torch.no_grad()
    def spread(self) -> None:
        """Round the masters to the model's weights."""
        if self._rounded:
            pairs = [(local(self.model[name]), local(self.masters[name])) for name in self._rounded]
            torch._foreach_copy_([weight for weight, _ in pairs], [master for _, master in pairs])

    def clip(self, most: float) -> Tensor:
        """Make the gradients no longer than `most` together; 0 leaves them. Returns how long they were: float32 []."""
        limit = most if most > 0 else math.inf
        length = nn.utils.clip_grad_norm_(self.masters.values(), limit, foreach=True)
        return length.full_tensor() if isinstance(length, DTensor) else length


def local(tensor: Tensor) -> Tensor:
    """This machine's part of a sharded tensor; any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def optimizer(weights: Weights, settings: Train) -> torch.optim.AdamW:
    """AdamW over the masters; matrices decay, vectors and scales do not."""
    masters = weights.masters
    decaying = [name for name in masters if masters[name].ndim >= 2 and not name.endswith("block_amax")]
    groups: list[dict[str, Any]] = [
        {"params": [masters[n] for n in decaying], "weight_decay": settings.weight_decay},
        {"params": [p for n, p in masters.items() if n not in set(decaying)], "weight_decay": 0.0},
    ]
    fused = all(p.device.type == "cuda" for p in masters.values())
    betas = (settings.betas[0], settings.betas[1])
    return torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=settings.lr, betas=betas, fused=fused or None
    )


def learning_rate(step: int, steps: int, settings: Train) -> float:
    """Of a step, counted from 0: up in a line, then a cosine down to `floor` of the peak, or level."""
    warm = math.ceil(settings.warmup * steps)
    if step < warm:
        return settings.lr * (step + 1) / warm
    if settings.schedule == "constant":
        return settings.lr
    done = (step - warm) / max(1, steps - warm)
    return settings.lr * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * done)))
