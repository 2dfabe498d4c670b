"""NVFP4: a matrix as E2M1 codes, one E4M3 scale for every 16 columns, and one float32 scale for the whole tensor.

  W[o, i] = e2m1(code[o, i]) * (float(scale[o, i // 16]) * tensor_scale)

in float32, with the parentheses as written: 4 + 8/16 = 4.5 bits a weight. In a Hugging Face folder of ModelOpt the
three parts are `weight` (uint8 [out, in / 2]), `weight_scale` (float8_e4m3fn [out, in / 16], in plain rows, not
swizzled) and `weight_scale_2` (float32 []).

  tensor_scale = amax / (6 * 448) = amax / 2688      6 is E2M1's largest value, 448 E4M3's
  scale        = e4m3(clamp(block amax / (6 * tensor_scale), 2^-9, 448)), and 1 for a block of zeros

2^-9 is the smallest E4M3 number. Without this lower bound, a block 2^-19 times smaller than the largest would get
the scale 0 and lose its weights. "Four over six" (arXiv 2512.02010) leaves room at the top: its norm is 256 instead
of 448, so tensor_scale = amax / 1536, and a block may end its codes at 4 instead of 6 with a scale 1.5 times as
large.

Sources: ModelOpt 0.47, quantization/qtensor/nvfp4_tensor.py (also for the order of the divisions: another order
changes the last bit, and with it a scale that lies halfway between two E4M3 numbers); arXiv 2509.25149 (NVIDIA's
NVFP4).

One difference: for a tensor of zeros, ModelOpt's tensor scale is 0 and its block scales are 0/0, NaN. Here the
tensor scale is 1 in that case.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

from quantizer.nvfp4 import grid
from quantizer.nvfp4.grid import E2M1_MAX

BLOCK: Final = 16
E4M3_MAX: Final = 448.0
E4M3_MIN: Final = 2.0**-9
FOUR_OVER_SIX: Final = 256.0
"""The `norm` that leaves room to multiply a block's scale by 1.5."""


class Nvfp4Tensor(NamedTuple):
    """A tensor in NVFP4.

    packed: uint8 [..., in / 2]. scale: float8_e4m3fn [..., in / 16]. tensor_scale: float32 [].
    """

    packed: Tensor
    scale: Tensor
    tensor_scale: Tensor


def block_amax(x: Tensor) -> Tensor:
    """The largest magnitude of each block: float [..., in] to float32 [..., in / 16]. Raises ValueError."""
    return _blocks(x).abs().amax(dim=-1).float()


def tensor_scale(amax: Tensor, norm: float = E4M3_MAX) -> Tensor:
    """The tensor scale for a largest magnitude of `amax`: float [] to float32 []."""
    scale = amax.float() / (E2M1_MAX * norm)
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def block_scale(block_amax: Tensor, tensor_scale: Tensor) -> Tensor:
    """The block scales, rounded: float32 [..., blocks] and float32 [] to float8_e4m3fn [..., blocks]."""
    scale = block_amax / (E2M1_MAX * tensor_scale)
    return to_e4m3(torch.where(scale == 0, torch.ones_like(scale), scale))


def static_scale(block_amax: Tensor, amax: Tensor, norm: float = E4M3_MAX) -> Tensor:
    """Block scales [...] from amax values chosen by a search or by training, rounded as ModelOpt's export rounds them.

    The order of operations is that of ModelOpt's `get_weights_scaling_factor_from_quantizer`.
    """
    scale = block_amax.float() / E2M1_MAX
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return to_e4m3(scale * norm / (amax.float() / E2M1_MAX))


def to_e4m3(scale: Tensor) -> Tensor:
    """A scale in E4M3, clamped to 2^-9 … 448: float32 [...] to float8_e4m3fn [...]."""
    return scale.clamp(E4M3_MIN, E4M3_MAX).to(torch.float8_e4m3fn)


def step(scale: Tensor, tensor_scale: Tensor) -> Tensor:
    """The value of code 1 in each block: [..., blocks] and [] to float32 [..., blocks]."""
    return scale.float() * tensor_scale


def quantize(weight: Tensor, second: Tensor | None = None, scale: Tensor | None = None) -> Nvfp4Tensor:
    """Round a tensor [..., in] to NVFP4, by scales that are given or come from the weight's amax. Raises ValueError."""
    if not torch.isfinite(weight).all():
        raise ValueError("the weight holds NaN or infinity, which NVFP4 cannot say")
    if second is None:
        second = tensor_scale(weight.abs().amax())
    if scale is None:
        scale = block_scale(block_amax(weight), second)
    scaled = _blocks(weight).float() / step(scale, second).unsqueeze(-1)
    return Nvfp4Tensor(grid.pack(grid.encode(scaled.flatten(-2))), scale, second)


def dequantize(tensor: Nvfp4Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values that a tensor represents: [..., in] in `dtype`, rounded once from float32."""
    values = _blocks(grid.decode(grid.unpack(tensor.packed)))
    return (values * step(tensor.scale, tensor.tensor_scale).unsqueeze(-1)).flatten(-2).to(dtype)


def round_blocks(x: Tensor, step: Tensor) -> Tensor:
    """The result of `dequantize(quantize(x))` for given steps [..., in / 16], without packing the codes, in x's dtype."""
    steps = step.unsqueeze(-1)
    return (grid.nearest(_blocks(x) / steps) * steps).flatten(-2).to(x.dtype)


def _blocks(x: Tensor) -> Tensor:
    if x.shape[-1] % BLOCK:
        raise ValueError(f"a row of {x.shape[-1]} is not a multiple of {BLOCK}, NVFP4's block")
    return x.reshape(*x.shape[:-1], -1, BLOCK)
