"""Which linear layers of a model become NVFP4, and putting them in their places.

`make_plan` reads patterns and touches nothing; `attach` replaces the layers, which keep their parameters; `tie` gives
layers that a server joins one scale, `measure` takes all weights' amax anew, as training has to now and then.
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
from quantizer.layers.fused import groups
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks
from quantizer.recipes.recipe import Layers

ALWAYS_KEPT: Final = ("lm_head", "in_proj_a", "in_proj_b")
"""Last parts of the names of linear layers that stay in BF16; see `recipe_values.Layers`."""
DELTANET: Final = "linear_attn"
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Plan:
    """Names of modules. layers: to be quantized. kept: those with a matrix that are not, embeddings and convolutions
    included. groups: of the layers, those that a server joins."""

    layers: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Every layer once: neighbours that a server joins together, the others alone."""
        joined = groups(self.layers)
        together = {name for group in joined for name in group}
        return (*joined, *((name,) for name in self.layers if name not in together))


def make_plan(model: nn.Module, wanted: Layers) -> Plan:
    """The layers that a recipe's [layers] means in this model.

    Raises RecipeError if a pattern covers nothing, if nothing is left to quantize, if only a part of neighbours that
    a server joins is left, or if a layer's rows are not whole blocks of 16.
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
    return Plan(layers, tuple(name for name in matrices if name not in layers))


def attach(model: nn.Module, plan: Plan, norm: float = blocks.E4M3_MAX) -> dict[str, NVFP4Linear]:
    """Put NVFP4 layers in the places of the plan's and tie them; returns them by name.

    The inputs' amax is zero until `quantizer.ptq.calibrate` has seen data. norm: see `NVFP4Linear`.
    """
    for name in plan.layers:
        layer = model.get_submodule(name)
        model.set_submodule(name, NVFP4Linear(layer, norm))  # type: ignore[arg-type]
    tie(model)
    return nvfp4_layers(model)


def detach(model: nn.Module, names: Iterable[str] | None = None) -> None:
    """Put plain layers back, all or these, with the master weights as they are now."""
    layers = nvfp4_layers(model)
    for name in layers if names is None else names:
        layer = layers[name]
        plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        plain.weight, plain.bias = layer.weight, layer.bias
        model.set_submodule(name, plain)


@torch.no_grad()
def tie(model: nn.Module) -> list[tuple[str, ...]]:
    """Give neighbours that a server joins the largest amax among them, for weights and inputs; returns the groups."""
    layers = nvfp4_layers(model)
    found = groups(layers)
    for group in found:
        members = [layers[name] for name in group]
        for part in ("weight_amax", "input_amax"):
            values = [getattr(member, part) for member in members]
            largest = torch.stack(values).amax()
            for value in values:
                value.copy_(largest)
    return found


@torch.no_grad()
def measure(model: nn.Module) -> None:
    """Take every weight's amax anew and tie it; the inputs' stay as they are. Block scales that were searched or learned
    stay too: search again where weights have moved."""
    for layer in nvfp4_layers(model).values():
        layer.weight_amax.copy_(layer.largest_weight())
    tie(model)


def _matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.ndim >= 2


def _always_kept(name: str) -> bool:
    return name.rpartition(".")[2] in ALWAYS_KEPT


def _covered(patterns: Iterable[str], names: Iterable[str], key: str) -> set[str]:
    """The names that one of the patterns covers. Raises RecipeError for a pattern that covers none."""
    names, found = list(names), set()
    for pattern in patterns:
        hits = {name for name in names if fnmatchcase(name, pattern)}
        if not hits:
            example = f"; names look like {names[0]}" if names else ""
            raise RecipeError(f"{key}: {pattern!r} matches no layer of this model{example}")
        found |= hits
    return found


def _by_place(names: Iterable[str], wanted: Layers) -> set[str]:
    """What first, last and deltanet leave out."""
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
    """A server joins neighbours into one matrix, which is NVFP4 or is not."""
    for group in groups(able):
        inside = [name for name in group if name in layers]
        if inside and len(inside) < len(group):
            apart = ", ".join(name for name in group if name not in inside)
            raise RecipeError(
                f"layers: a server joins {', '.join(inside)} with {apart}: quantize all or none"
            )
