"""ModelOpt's searches on a CPU, with the arithmetic of `quantizer.nvfp4` in place of its CUDA kernels.

The kernels are module globals of ModelOpt's `tensor_quantizer`; NVIDIA's own CPU tests replace them in the same way.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from quantizer.nvfp4 import blocks, fake
from quantizer.ptq import modelopt
from quantizer.recipes.recipe import load_recipe

SEAM = "modelopt.torch.quantization.nn.modules.tensor_quantizer"


@contextmanager
def installed() -> Iterator[Any]:
    """Within a `with` block ModelOpt rounds on a CPU; yields `modelopt.torch.quantization`."""
    mtq = modelopt.open_modelopt(load_recipe("modelopt_default"), "cpu")
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
