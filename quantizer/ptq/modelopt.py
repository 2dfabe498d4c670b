"""Quantization with ModelOpt's calibration and search. Layer selection and export are ours: its exporter renames modules."""

import copy
import importlib
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import torch
from torch import nn

from quantizer.checkpoint.source import Source, load_model
from quantizer.core.batch import Batch, hidden_states
from quantizer.core.cost import Cost
from quantizer.core.errors import UnavailableError
from quantizer.layers.attach import LayerPlan, attach, make_plan
from quantizer.layers.fused import FUSED, fused_groups
from quantizer.layers.linear import NVFP4Linear
from quantizer.nvfp4 import blocks
from quantizer.ptq.scales import norm_of
from quantizer.recipes.recipe import Recipe

CONFIGS: Final = {
    "max": "NVFP4_DEFAULT_CFG",
    "mse": "NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG",
    "four_over_six": "NVFP4_FOUR_OVER_SIX_CFG",
}
"""A recipe's weights.scales to ModelOpt's name of the configuration."""
KNOWN: Final = "0.47.0"
"""The version whose layout and attributes are used here."""


def open_modelopt(recipe: Recipe, device: str) -> Any:
    """`modelopt.torch.quantization`. Raises UnavailableError: missing, another version, or its CUDA kernels are needed."""
    try:
        found = version("nvidia-modelopt")
    except PackageNotFoundError:
        raise UnavailableError("ModelOpt is not installed: make quantizer") from None
    if found != KNOWN:
        raise UnavailableError(
            f"ModelOpt {found} is installed and {KNOWN} is known: make quantizer brings it"
        )
    if recipe.weights.scales != "max" and torch.device(device).type != "cuda":
        raise UnavailableError(
            f'ModelOpt searches scales on CUDA only; take backend = "manners" for "{recipe.weights.scales}"'
        )
    with warnings.catch_warnings():
        # ModelOpt warns about transformers 5.15 and newer; tests/quantizer runs every path that is used here.
        warnings.filterwarnings("ignore", "transformers .* is not tested with current version of modelopt")
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        return importlib.import_module("modelopt.torch.quantization")


def quantize(recipe: Recipe, source: Source, batches: Sequence[Batch], device: str, cost: Cost) -> nn.Module:
    """The source's model with NVFP4 layers that have ModelOpt's scales. Raises UnavailableError, RecipeError."""
    with cost.part("load"):
        mtq = open_modelopt(recipe, device)
        model = load_model(source, device=device)
        plan = make_plan(model, recipe.layers)
    with (
        cost.part("modelopt"),
        redirect_stdout(sys.stderr),
    ):  # it prints progress to stdout, where our result goes
        calibrated = mtq.quantize(model, config(mtq, recipe, plan), lambda m: _run(m, batches))
        share_modelopt_scales(calibrated)
        found = {name: calibrated.get_submodule(name) for name in plan.layers}
        for layer in found.values():
            layer.weight = None  # only the quantizers are needed: never two models at a time
        del model, calibrated
    with cost.part("load"):
        made = load_model(source, device=device)
        for name, layer in attach(made, plan, norm_of(recipe.weights.scales)).items():
            _take_over(layer, found[name])
    return made


def config(mtq: Any, recipe: Recipe, plan: LayerPlan) -> dict[str, Any]:
    """ModelOpt's configuration for a recipe and the selected layers."""
    made: dict[str, Any] = copy.deepcopy(getattr(mtq, CONFIGS[recipe.weights.scales]))
    made["quant_cfg"] += [{"quantizer_name": f"{name}.*", "enable": False} for name in plan.kept]
    if recipe.weights.scales != "max":
        # By default, scales are shared among q, k, v and gate, up, but not between DeltaNet's two.
        neighbours = [rf"(?:(.*)\.)?(?:{'|'.join(kinds)})" for kinds in FUSED]
        made["algorithm"]["shared_states"] = {"weight_global_amax": {"patterns": neighbours}}
    return made


def _run(model: nn.Module, batches: Sequence[Batch]) -> None:
    device = next(model.parameters()).device
    for batch in batches:
        hidden_states(model, batch.to(device))


def _take_over(layer: NVFP4Linear, theirs: Any) -> None:
    weight = theirs.weight_quantizer
    static = getattr(weight, "global_amax", None)
    amax = weight.amax if static is None else static
    layer.weight_amax.copy_(amax.float().reshape(()))
    layer.input_amax.copy_(theirs.input_quantizer.amax.float().reshape(()))
    if static is not None:
        shape = (layer.out_features, layer.in_features // blocks.BLOCK)
        with torch.no_grad():
            layer.fix_scales(blocks.static_scale(weight.amax.reshape(shape), layer.weight_amax, layer.norm))


def share_modelopt_scales(model: nn.Module) -> list[tuple[str, ...]]:
    """Give the layers of each fused group the group's largest amax, for weights and inputs; the groups.

    ModelOpt does so only when it exports; without it, a model is measured with other numbers than it is served with.
    """
    layers = {name: layer for name, layer in model.named_modules() if _enabled(layer, "weight_quantizer")}
    found = fused_groups(layers)
    for group in found:
        members = [layers[name] for name in group]
        weights = [member.weight_quantizer for member in members]
        _share(weights, "amax" if getattr(weights[0], "global_amax", None) is None else "global_amax")
        if all(_enabled(member, "input_quantizer") for member in members):
            _share([member.input_quantizer for member in members], "amax")
    return found


def _enabled(layer: Any, name: str) -> bool:
    return bool(getattr(getattr(layer, name, None), "is_enabled", False))


def _share(quantizers: list[Any], name: str) -> None:
    values = [getattr(quantizer, name) for quantizer in quantizers]
    if any(value is None or value.numel() != 1 for value in values):
        return
    largest = torch.stack([value.float().reshape(()) for value in values]).amax()
    for quantizer, value in zip(quantizers, values, strict=True):
        setattr(quantizer, name, largest.to(value.dtype).reshape(value.shape))
