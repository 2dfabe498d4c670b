"""Which linear layers of a model become NVFP4, decided by their names alone; `attach` and the plan share it."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from quantizer.core.errors import RecipeError
from quantizer.layers.fused import fused_groups
from quantizer.nvfp4.blocks import BLOCK
from quantizer.recipes.recipe import Layers

ALWAYS_KEPT: Final = (
    "lm_head",
    "embed_out",
    "in_proj_a",
    "in_proj_b",
    "gate",
    "router",
    "shared_expert_gate",
)
"""Last parts of the names of linear layers that always stay in BF16; see `quantizer.recipes.recipe.Layers`."""
DELTANET: Final = "linear_attn"
_NUMBER: Final = re.compile(r"\.(\d+)\.")


def layer_index(name: str) -> int | None:
    """The number of the decoder layer that a module or tensor is in: the first number of its name."""
    found = _NUMBER.search(name)
    return int(found[1]) if found else None


def select_layers(linear: Mapping[str, int], matrices: Iterable[str], wanted: Layers) -> tuple[str, ...]:
    """The layers that a recipe's [layers] makes NVFP4, in the model's order. Raises RecipeError.

    `linear`: linear layers with their numbers of input columns; `matrices`: all modules with a matrix, these included.
    """
    able = [name for name in linear if name.rpartition(".")[2] not in ALWAYS_KEPT]
    everything = list(matrices)
    chosen = _covered(wanted.include, able, "layers.include")
    left_out = _covered(wanted.exclude, everything, "layers.exclude") | _by_place(everything, wanted)
    layers = tuple(name for name in able if name in chosen - left_out)
    if not layers:
        raise RecipeError("layers: every linear layer is left out, so nothing is left for NVFP4")
    _check_whole_groups(able, layers)
    for name in layers:
        if linear[name] % BLOCK:
            raise RecipeError(
                f"{name} has {linear[name]} input columns, not whole blocks of {BLOCK}: add it to layers.exclude"
            )
    return layers


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
    places = {name: place for name in names if (place := layer_index(name)) is not None}
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
    """Raises RecipeError if only some of a group are chosen: a server fuses them into one matrix, of one format."""
    for group in fused_groups(able):
        inside = [name for name in group if name in layers]
        if inside and len(inside) < len(group):
            apart = ", ".join(name for name in group if name not in inside)
            raise RecipeError(
                f"layers: a server joins {', '.join(inside)} with {apart}: all in one format, or none"
            )
