"""Adapters of low rank on chosen layers: W' = W + (alpha / rank) * up @ down.

The model always holds W', computed again after every optimizer step; so it is rounded, compiled and exported as any weight is,
and there is nothing to merge. `down` begins random and `up` zero, so W' begins as W.
"""

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from quantizer.core.errors import RecipeError
from quantizer.recipes.recipe import Lora
from quantizer.train.weights import Weights


class Adapters(Weights):
    """The weights of chosen layers, moved by two factors each. masters: NAME.down float32 [rank, in] and NAME.up float32
    [out, rank], where NAME is the weight's."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], wanted: Lora, seed: int) -> None:
        self.model = dict(named)
        self.scale = wanted.alpha / wanted.rank
        self.base = {name: weight.detach().clone() for name, weight in self.model.items()}
        generator = torch.Generator().manual_seed(seed)
        self.masters = {}
        for name, weight in self.model.items():
            for part, factor in zip(("down", "up"), _factors(weight, wanted.rank, generator), strict=True):
                self.masters[f"{name}.{part}"] = nn.Parameter(factor.to(weight.device))

    @torch.no_grad()
    def collect(self) -> None:
        """Turn the gradients of a backward pass into those of the factors, and add them to what is there already."""
        for name, weight in self.model.items():
            if weight.grad is None:
                continue
            gradient = weight.grad.float() * self.scale
            weight.grad = None
            down, up = self.masters[f"{name}.down"], self.masters[f"{name}.up"]
            for factor, more in ((down, up.T @ gradient), (up, gradient @ down.T)):
                factor.grad = more if factor.grad is None else factor.grad + more

    @torch.no_grad()
    def spread(self) -> None:
        """Make the weights of their factors."""
        for name, weight in self.model.items():
            change = self.masters[f"{name}.up"] @ self.masters[f"{name}.down"]
            weight.copy_(self.base[name].float() + self.scale * change)


def adapt(model: nn.Module, names: Sequence[str], wanted: Lora, seed: int) -> Adapters:
    """Adapters for those layers that the recipe's patterns cover; everything else is frozen. Raises RecipeError."""
    for pattern in wanted.targets:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise RecipeError(
                f"lora.targets: {pattern!r} matches no quantized layer; they look like {names[0]}"
            )
    model.requires_grad_(False)
    chosen = [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted.targets)]
    weights = {f"{name}.weight": model.get_parameter(f"{name}.weight") for name in chosen}
    for weight in weights.values():
        weight.requires_grad_()
    return Adapters(weights.items(), wanted, seed)


def _factors(weight: Tensor, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """down: small random numbers. up: zeros."""
    rows, columns = weight.shape
    bound = 1 / math.sqrt(columns)
    down = torch.empty(rank, columns).uniform_(-bound, bound, generator=generator)
    return down, torch.zeros(rows, rank)
