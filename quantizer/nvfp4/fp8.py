"""FP8 beside NVFP4: a matrix as E4M3 numbers with one float32 scale for the whole of it.

  W[o, i] = float(code[o, i]) * scale        scale = amax / 448, and 1 for a matrix of zeros

Inputs are rounded in the same way, under a scale from calibration; larger numbers saturate. In a Hugging Face folder of
ModelOpt the parts are `weight` (float8_e4m3fn [out, in]), `weight_scale` (float32 []) and `input_scale` (float32 []).

One difference: ModelOpt rounds the quotient of weight and scale to BF16 before it rounds to E4M3, which moves a few per
cent of the weights to the neighbouring number. Here it is not rounded twice.

Source: ModelOpt 0.47, export/quant_utils.py (QUANTIZATION_FP8); vLLM 0.24, ModelOptFp8LinearMethod.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from quantizer.nvfp4.blocks import E4M3_MAX

ROWS: Final = 2**22  # numbers per slice, to limit the memory of a conversion


class Fp8Tensor(NamedTuple):
    """A matrix in FP8. codes: float8_e4m3fn [out, in]. scale: float32 []."""

    codes: Tensor
    scale: Tensor


def scale_of(amax: Tensor) -> Tensor:
    """The scale for a largest magnitude: float [] to float32 []."""
    scale = amax.float() / E4M3_MAX
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def to_codes(x: Tensor, scale: Tensor) -> Tensor:
    """The nearest E4M3 numbers to x / scale, ties to even, at most 448: float [...] to float8_e4m3fn [...]."""
    return (x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def quantize(weight: Tensor, scale: Tensor) -> Fp8Tensor:
    """Round a matrix. Raises ValueError if it is not finite."""
    if not torch.isfinite(weight).all():
        raise ValueError("the weight holds NaN or infinity, which FP8 cannot say")
    return Fp8Tensor(torch.cat([to_codes(part, scale) for part in _parts(weight)]), scale)


def dequantize(tensor: Fp8Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values that a matrix represents, in `dtype`, rounded once from float32."""
    return torch.cat([(part.float() * tensor.scale).to(dtype) for part in _parts(tensor.codes)])


def fake(x: Tensor, scale: Tensor) -> Tensor:
    """The values of x after rounding, in x's type. There is no gradient: nothing is trained in FP8."""
    return (to_codes(x, scale).float() * scale).to(x.dtype)


def _parts(matrix: Tensor) -> tuple[Tensor, ...]:
    return matrix.split(max(1, ROWS // max(1, matrix.shape[-1])))
