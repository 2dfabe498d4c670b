"""What an optimizer moves: float32 masters behind the BF16 weights that a model computes with.

A step of 1e-5 of a BF16 weight would be rounded away every time; the masters keep it.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from quantizer.core.shard import local
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


class MasterOptimizer:
    """AdamW over the masters, after the backward passes of a step: the exact path, in float32. What the trainer calls is
    what `optimizer_in_backward.OptimizerInBackward` has too."""

    measured = True
    """Clipping needs to know nothing of the gradients before the first step."""

    def __init__(self, weights: Weights, settings: Train) -> None:
        self.weights, self.clip = weights, settings.clip
        self.adam = optimizer(weights, settings)

    def begin(self, lr: float) -> None:
        """Set the learning rate of the step that begins."""
        for group in self.adam.param_groups:
            group["lr"] = lr

    def measuring(self) -> AbstractContextManager[None]:
        """Never needed here."""
        return nullcontext()

    def collect(self) -> None:
        """Add the gradients of a backward pass to those of the step."""
        self.weights.collect()

    def finish(self) -> Tensor:
        """Clip and apply the step's gradients; returns how long they were before: float32 []."""
        length = self.weights.clip(self.clip)
        self._step()
        return length

    def apply(self, length: Tensor) -> None:
        """Clip and apply the step's gradients as parts of one of that length, float32 []."""
        if self.clip > 0:
            gradients = [local(p.grad) for p in self.weights.masters.values() if p.grad is not None]
            torch._foreach_mul_(gradients, (self.clip / (length + 1e-6)).clamp(max=1.0))
        self._step()

    def _step(self) -> None:
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        self.weights.spread()

    def state(self) -> dict[str, Any]:
        """The masters and the moments; of this machine's shards."""
        masters = self.weights.masters
        return {
            "masters": {name: local(p) for name, p in masters.items()},
            "optimizer": {
                name: {key: local(value) for key, value in self.adam.state.get(p, {}).items()}
                for name, p in masters.items()
            },
        }

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        for name, master in self.weights.masters.items():
            local(master).copy_(state["masters"][name])
            self.adam.state[master] = self._like(master, state["optimizer"][name])
        self.weights.spread()

    def _like(self, master: Any, moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Adam's moments on the master's device, sharded as it is; its count of steps where Adam wants it."""
        made = {}
        for key, value in moments.items():
            if key != "step" or self.adam.defaults["fused"]:
                value = value.to(master.device)
            if key != "step" and isinstance(master, DTensor):
                value = DTensor.from_local(value, master.device_mesh, master.placements)
            made[key] = value
        return made


def optimizer(weights: Weights, settings: Train) -> torch.optim.AdamW:
    """AdamW over the masters."""
    masters = weights.masters
    groups: list[dict[str, Any]] = [
        {"params": [p for n, p in masters.items() if decays(n, p)], "weight_decay": settings.weight_decay},
        {"params": [p for n, p in masters.items() if not decays(n, p)], "weight_decay": 0.0},
    ]
    fused = all(p.device.type == "cuda" for p in masters.values())
    betas = (settings.betas[0], settings.betas[1])
    return torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=settings.lr, betas=betas, fused=fused or None
    )


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay is for it: matrices decay, vectors and scales do not."""
    return parameter.ndim >= 2 and not name.endswith("block_amax")


def learning_rate(step: int, steps: int, settings: Train) -> float:
    """Of a step, counted from 0: up in a line, then a cosine down to `floor` of the peak."""
    warm = math.ceil(settings.warmup * steps)
    if step < warm:
        return settings.lr * (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    return settings.lr * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * done)))
