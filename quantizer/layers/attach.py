"""Choose the linear layers of a model that become NVFP4, and replace them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quantizer.core.expert_names import sibling_experts
from quantizer.layers.fused import fused_groups
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers
from quantizer.layers.selection import select_layers
from quantizer.nvfp4 import blocks
from quantizer.recipes.recipe import Layers


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """Names of modules. layers: to become NVFP4. kept: modules with a matrix that stay as they are, including embeddings
    and convolutions."""

    layers: tuple[str, ...]
    kept: tuple[str, ...]

    def within(self, prefix: str) -> LayerPlan:
        """The layers of one decoder layer, named as in it. prefix: the decoder layer's name, with a dot."""
        return LayerPlan(tuple(n.removeprefix(prefix) for n in self.layers if n.startswith(prefix)), ())

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Every layer once: layers that a server fuses in one tuple, each of the others in a tuple of its own."""
        joined = fused_groups(self.layers)
        together = {name for group in joined for name in group}
        return (*joined, *((name,) for name in self.layers if name not in together))


def make_plan(model: nn.Module, wanted: Layers) -> LayerPlan:
    """The layers of this model that a recipe's [layers] selects. Raises RecipeError as `select_layers`."""
    matrices = {name: m for name, m in model.named_modules() if is_matrix(m)}
    linear = {name: m.in_features for name, m in matrices.items() if isinstance(m, nn.Linear)}
    layers = select_layers(linear, matrices, wanted)
    return LayerPlan(layers, tuple(name for name in matrices if name not in set(layers)))


def attach(
    model: nn.Module, plan: LayerPlan, norm: float = blocks.E4M3_MAX, weight_only: bool = False
) -> dict[str, NVFP4Linear]:
    """Replace the layers of the plan by quantized ones with shared scales, by name; `calibrate` sets the amax of their inputs."""
    for name in plan.layers:
        layer = model.get_submodule(name)
        model.set_submodule(name, NVFP4Linear(layer, norm, weight_only))  # type: ignore[arg-type]
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
    """Give layers that a server fuses their largest amax, for weights and inputs, and all experts of a layer that of
    their inputs. Returns the groups of fused layers."""
    layers = nvfp4_layers(model)
    found = fused_groups(layers)
    for group in found:
        _share([layers[name].weight_amax for name in group])
    for group in (*found, *sibling_experts(layers)):
        _share([layers[name].input_amax for name in group])
    return found


def _share(values: list[Tensor]) -> None:
    largest = torch.stack(values).amax()
    for value in values:
        value.copy_(largest)


@torch.no_grad()
def refresh_weight_amax(model: nn.Module) -> None:
    """Measure the amax of every weight again and share it; block scales that were searched stay."""
    for layer in nvfp4_layers(model).values():
        layer.weight_amax.copy_(layer.largest_weight())
    share_scales(model)


def is_matrix(module: nn.Module) -> bool:
    """Whether a module has a weight of at least two dimensions."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.ndim >= 2
