"""ModelOpt 0.47 on a machine without CUDA, with its NVFP4 arithmetic replaced by `quantizer.nvfp4`.

ModelOpt calibrates and exports on any device, but it rounds to NVFP4 with CUDA and Triton only. A forward pass
through enabled quantizers, the searches of AWQ and MSE, QAT and QAD all end in one of three functions that its
module `tensor_quantizer` holds as globals. `install` replaces each of them:

  dynamic_block_quant              weights and activations whose block scales come from the tensor (W4A4, AWQ)
  static_blockwise_fp4_fake_quant  weights with a calibrated amax for each block (MSE, four over six, GPTQ)
  fp4_cast_ste                     the bare rounding, for learned scales (LSQ)

Each replacement inspects its tensor: on CUDA, or for a format other than NVFP4, it calls ModelOpt's own function
with the same arguments. So `install` changes nothing on a GPU, and the same program runs on both.

The arithmetic is that of ModelOpt's export (`NVFP4QTensor`, torch only) and not that of its kernels, so that a
model is trained with exactly the numbers it is served with. The kernels differ from the export in blocks about
2^-19 times smaller than the tensor's largest number (they become zero, while the export raises their scale to
2^-9), in blocks whose scale is below 1e-5, and in static scales, which are computed in another order, so that the
last bit may differ and a scale halfway between two E4M3 numbers may be rounded the other way.

Importing this module changes nothing. Only the version of ModelOpt that it was written for is accepted.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, Final

import torch
from torch import Tensor

from quantizer.core.errors import UnavailableError
from quantizer.nvfp4 import blocks, fake

KNOWN: Final = ("0.47.0",)
E2M1: Final = (2, 1)  # exponent and mantissa bits, as ModelOpt writes formats
E4M3: Final = (4, 3)
_SEAM: Final = "modelopt.torch.quantization.nn.modules.tensor_quantizer"
_OWN: Final = "modelopts_own"  # attribute of our functions with the one they replace

Kernel = Callable[..., Tensor]


class ModelOptError(UnavailableError):
    """ModelOpt is not installed, or is of an unsupported version."""


def install() -> ModuleType:
    """Make ModelOpt work on this machine. Returns `modelopt.torch.quantization`.

    May be called repeatedly. Raises ModelOptError if ModelOpt is missing or of another version.
    """
    mtq, seam = _modelopt()
    for name, build in OURS.items():
        own = getattr(seam, name)
        if not hasattr(own, _OWN):
            ours = build(own)
            setattr(ours, _OWN, own)
            setattr(seam, name, ours)
    return mtq


def remove() -> None:
    """Restore ModelOpt's own functions."""
    _, seam = _modelopt()
    for name in OURS:
        own = getattr(getattr(seam, name), _OWN, None)
        if own is not None:
            setattr(seam, name, own)


@contextmanager
def installed() -> Iterator[ModuleType]:
    """`install` for the duration of a `with` block; yields `modelopt.torch.quantization`."""
    mtq = install()
    try:
        yield mtq
    finally:
        remove()


def _modelopt() -> tuple[ModuleType, ModuleType]:
    try:
        found = version("nvidia-modelopt")
    except PackageNotFoundError:
        raise ModelOptError("ModelOpt is not installed: make quantizer") from None
    if found not in KNOWN:
        raise ModelOptError(
            f"ModelOpt {found} is installed and {', '.join(KNOWN)} is known: make quantizer brings the known one"
        )
    with warnings.catch_warnings():
        # ModelOpt warns that it was tested with transformers before 5.15. Ours is newer; tests/quantizer runs
        # every path that is used.
        warnings.filterwarnings("ignore", "transformers .* is not tested with current version of modelopt")
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        mtq = importlib.import_module("modelopt.torch.quantization")
    return mtq, importlib.import_module(_SEAM)


def _dynamic(own: Kernel) -> Kernel:
    def dynamic_block_quant(
        inputs: Tensor,
        block_size: int,
        amax: Tensor | None,
        bias: Tensor | None,
        num_bits: Any,
        scale_bits: Any,
        trt_dtype: str | None = None,
        onnx_type: str = "dynamic",
        pass_through_bwd: bool = True,
    ) -> Tensor:
        if amax is None or inputs.is_cuda or (num_bits, scale_bits) != (E2M1, E4M3):
            rest = (trt_dtype, onnx_type, pass_through_bwd)
            return own(inputs, block_size, amax, bias, num_bits, scale_bits, *rest)
        _check_block(block_size)
        return fake.fake_dynamic(inputs, amax.amax(), None if pass_through_bwd else amax)

    return dynamic_block_quant


def _static(own: Kernel) -> Kernel:
    def static_blockwise_fp4_fake_quant(
        x: Tensor,
        amax: Tensor,
        global_amax: Tensor | None = None,
        quantize_block_scales: bool = True,
        norm: float = blocks.E4M3_MAX,
        out_dtype: torch.dtype | None = None,
        pass_through_bwd: bool = False,
    ) -> Tensor:
        if x.is_cuda or not quantize_block_scales:
            return own(x, amax, global_amax, quantize_block_scales, norm, out_dtype, pass_through_bwd)
        rows, amax = x.reshape(amax.numel(), -1), amax.reshape(-1, 1)
        _check_block(rows.shape[-1])
        largest = amax.amax() if global_amax is None else global_amax
        scale, second = blocks.static_scale(amax, largest, norm), blocks.tensor_scale(largest, norm)
        rounded = fake.fake_static(rows, scale, second, None if pass_through_bwd else amax)
        return rounded.view_as(x).to(out_dtype or x.dtype)

    return static_blockwise_fp4_fake_quant


def _cast(own: Kernel) -> Kernel:
    def fp4_cast_ste(x: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
        return own(x, out_dtype) if x.is_cuda else fake.fake_grid(x).to(out_dtype or x.dtype)

    return fp4_cast_ste


def _check_block(size: int) -> None:
    if size != blocks.BLOCK:
        raise ModelOptError(f"a block of {size} is not NVFP4; its block_sizes want -1: {blocks.BLOCK}")


OURS: Final[dict[str, Callable[[Kernel], Kernel]]] = {
    "dynamic_block_quant": _dynamic,
    "static_blockwise_fp4_fake_quant": _static,
    "fp4_cast_ste": _cast,
}
