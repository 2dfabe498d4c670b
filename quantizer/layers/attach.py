"""Choose the linear layers of a model that become NVFP4, and replace them.

`make_plan` evaluates the recipe's patterns without changing the model. `attach` replaces the layers, which keep
their parameters. `share_scales` gives layers that a server fuses a common scale. `refresh_weight_amax` measures the
weights again, as training has to from time to time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import torch
from torch import nn

from quantizer.core.errors import RecipeError
from quantizer.layers.fused import fused_groups
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks
from quantizer.recipes.recipe import Layers

ALWAYS_KEPT: Final = ("lm_head", "in_proj_a", "in_proj_b")
"""Last parts of the names of linear layers that always stay in BF16; see `quantizer.recipes.recipe.Layers`."""
DELTANET: Final = "linear_attn"
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """Names of modules. layers: to be quantized. kept: other modules with a matrix, including embeddings and
    convolutions."""

    layers: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Every layer once: layers that a server fuses in one tuple, each of the others in a tuple of its own."""
        joined = fused_groups(self.layers)
        together = {name for group in joined for name in group}
        return (*joined, *((name,) for name in self.layers if name not in together))


def make_plan(model: nn.Module, wanted: Layers) -> LayerPlan:
    """The layers of this model that a recipe's [layers] selects.

    Raises RecipeError if a pattern matches nothing, no layer is left to quantize, only some of a group of layers
    that a server fuses are selected, or a layer's rows are not whole blocks of 16.
    """
    matrices = {name: m for name, m in model.named_modules() if _matrix(m)}
    able = [name for name, m in matrices.items() if isinstance(m, nn.Linear) and not _always_kept(name)]
    chosen = _covered(wanted.include, able, "layers.include")
    left_out = _covered(wanted.exclude, matrices, "layers.exclude") | _by_place(matrices, wanted)
    layers = tuple(name for name in able if name in chosen - left_out)
    if not layers:
        raise RecipeError("layers: every linear layer is left out, so there is nothing to quantize")
    _check_whole_groups(able, layers)
    for name in layers:
        columns = matrices[name].in_features
        if columns % blocks.BLOCK:
            raise RecipeError(
                f"{name} has {columns} input columns, not whole blocks of {blocks.BLOCK}: add it to layers.exclude"
            )
    return LayerPlan(layers, tuple(name for name in matrices if name not in layers))


def attach(model: nn.Module, plan: LayerPlan, norm: float = blocks.E4M3_MAX) -> dict[str, NVFP4Linear]:
    """Replace the layers of the plan by NVFP4 layers with shared scales. Returns them by name.

    The amax of the inputs is zero until `quantizer.ptq.calibrate` has seen data. norm: see `NVFP4Linear`.
    """
    for name in plan.layers:
        layer = model.get_submodule(name)
        model.set_submodule(name, NVFP4Linear(layer, norm))  # type: ignore[arg-type]
    share_scales(model)
    return nvfp4_layers(model)


def detach(model: nn.Module, names: Iterable[str] | None = None) -> None:
    """Put plain layers back, all or only the named ones, with the current master weights."""
    layers = nvfp4_layers(model)
    for name in layers if names is None else names:
        layer = layers[name]
        plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        plain.weight, plain.bias = layer.weight, layer.bias
        model.set_submodule(name, plain)


@torch.no_grad()
def share_scales(model: nn.Module) -> list[tuple[str, ...]]:
    """Give layers that a server fuses their largest amax, for weights and inputs. Returns the groups of layers."""
    layers = nvfp4_layers(model)
    found = fused_groups(layers)
    for group in found:
        members = [layers[name] for name in group]
        for part in ("weight_amax", "input_amax"):
            values = [getattr(member, part) for member in members]
            largest = torch.stack(values).amax()
            for value in values:
                value.copy_(largest)
    return found


@torch.no_grad()
def refresh_weight_amax(model: nn.Module) -> None:
    """Measure the amax of every weight again and share it. The amax of the inputs does not change.

    Block scales that were searched or learned do not change either: search again if the weights have moved.
    """
    for layer in nvfp4_layers(model).values():
        layer.weight_amax.copy_(layer.largest_weight())
    share_scales(model)


def _matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.ndim >= 2


def _always_kept(name: str) -> bool:
    return name.rpartition(".")[2] in ALWAYS_KEPT


def _covered(patterns: Iterable[str], names: Iterable[str], key: str) -> set[str]:
    """The names that match any of the patterns. Raises RecipeError for a pattern that matches nothing."""
    names, found = list(names), set()
    for pattern in patterns:
        hits = {name for name in names if fnmatchcase(name, pattern)}
        if not hits:
            example = f"; names look like {names[0]}" if names else ""
            raise RecipeError(f"{key}: {pattern!r} matches no layer of this model{example}")
        found |= hits
    return found


def _by_place(names: Iterable[str], wanted: Layers) -> set[str]:
    """The layers that `first`, `last` and `deltanet` leave out."""
    places = {name: int(found[1]) for name in names if (found := _LAYER.search(name))}
    count = max(places.values(), default=-1) + 1
    if wanted.first + wanted.last >= count > 0 and wanted.first + wanted.last:
        raise RecipeError(f"layers: first and last leave out all of this model's {count} decoder layers")
    ends = {n for n, place in places.items() if place < wanted.first or place >= count - wanted.last}
    if wanted.deltanet:
        return ends
    deltanet = {name for name in places if f".{DELTANET}." in name}
    if not deltanet:
        raise RecipeError("layers.deltanet: this model has no DeltaNet layer; leave the key out")
    return ends | deltanet


def _check_whole_groups(able: Iterable[str], layers: Iterable[str]) -> None:
    """Raises RecipeError if only some of a group are chosen: a server fuses them into one matrix, which is NVFP4 or
    not."""
    for group in fused_groups(able):
        inside = [name for name in group if name in layers]
        if inside and len(inside) < len(group):
            apart = ", ".join(name for name in group if name not in inside)
            raise RecipeError(
                f"layers: a server joins {', '.join(inside)} with {apart}: quantize all or none"
            )
