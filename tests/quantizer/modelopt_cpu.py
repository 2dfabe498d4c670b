"""ModelOpt's searches on a CPU, with the arithmetic of `quantizer.nvfp4` in place of its CUDA kernels.

The kernels are module globals of ModelOpt's `tensor_quantizer`; NVIDIA's own CPU tests replace them in the same way.
"""

import copy
import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from quantizer.layers.attach import LayerPlan
from quantizer.layers.fused import FUSED
from quantizer.nvfp4 import blocks, fake
from quantizer.recipes.recipe import Recipe

SEAM = "modelopt.torch.quantization.nn.modules.tensor_quantizer"
CONFIGS = {
    "max": "NVFP4_DEFAULT_CFG",
    "mse": "NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG",
    "four_over_six": "NVFP4_FOUR_OVER_SIX_CFG",
}
"""A recipe's weights.scales to ModelOpt's name of the configuration."""


def config(mtq: Any, recipe: Recipe, plan: LayerPlan) -> dict[str, Any]:
    """ModelOpt's configuration for a recipe and the selected layers."""
    made: dict[str, Any] = copy.deepcopy(getattr(mtq, CONFIGS[recipe.weights.scales]))
    made["quant_cfg"] += [{"quantizer_name": f"{name}.*", "enable": False} for name in plan.kept]
    if recipe.weights.scales != "max":
        # By default, scales are shared among q, k, v and gate, up, but not between DeltaNet's two.
        neighbours = [rf"(?:(.*)\.)?(?:{'|'.join(kinds)})" for kinds in FUSED]
        made["algorithm"]["shared_states"] = {"weight_global_amax": {"patterns": neighbours}}
    return made


@contextmanager
def installed() -> Iterator[Any]:
    """Within a `with` block ModelOpt rounds on a CPU; yields `modelopt.torch.quantization`."""
    with warnings.catch_warnings():  # of transformers 5.15 and newer
        warnings.simplefilter("ignore")
        mtq = importlib.import_module("modelopt.torch.quantization")
        importlib.import_module("modelopt.torch.export")
    with pytest.MonkeyPatch.context() as patch:
        seam = importlib.import_module(SEAM)
        patch.setattr(seam, "dynamic_block_quant", _dynamic)
        patch.setattr(seam, "static_blockwise_fp4_fake_quant", _static)
        yield mtq


def _dynamic(inputs: Tensor, block_size: int, amax: Tensor, *rest: Any) -> Tensor:
    return fake.fake_dynamic(inputs, amax.amax())


def _static(
    x: Tensor,
    amax: Tensor,
    global_amax: Tensor | None = None,
    quantize_block_scales: bool = True,
    norm: float = blocks.E4M3_MAX,
    out_dtype: torch.dtype | None = None,
    pass_through_bwd: bool = False,
) -> Tensor:
    rows, amax = x.reshape(amax.numel(), -1), amax.reshape(-1, 1)
    largest = amax.amax() if global_amax is None else global_amax
    scale, second = blocks.static_scale(amax, largest, norm), blocks.tensor_scale(largest, norm)
    return fake.fake_static(rows, scale, second).view_as(x).to(out_dtype or x.dtype)
