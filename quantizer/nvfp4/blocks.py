"""NVFP4: a matrix as E2M1 codes, one E4M3 scale for 16 columns, and one float32 scale for all.

    W[o, i] = e2m1(code[o, i]) * (float(scale[o, i // 16]) * tensor_scale)

in float32, with the parentheses as they stand. 4 + 8/16 = 4.5 bits a weight. In a Hugging Face folder of ModelOpt
the three parts are `weight` (uint8 [out, in / 2]), `weight_scale` (float8_e4m3fn [out, in / 16], in plain rows, not
swizzled) and `weight_scale_2` (float32, no dimensions).

    tensor_scale = amax / (6 * 448) = amax / 2688      6 ends E2M1, 448 ends E4M3
    scale        = e4m3(clamp(block amax / (6 * tensor_scale), 2^-9, 448)), and 1 for a block of zeros

2^-9 is E4M3's smallest number: without the floor, a block 2^-19 times smaller than the largest would get the scale
0 and its weights would be lost. "Four over six" (arXiv 2512.02010) leaves room above: norm 256 for 448, so
amax / 1536; a block may then end its codes at 4 instead of 6, with half as much scale again.

Sources: ModelOpt 0.47, quantization/qtensor/nvfp4_tensor.py (the order of the divisions too: another order changes
the last bit, and at a tie of E4M3 the scale); arXiv 2509.25149 (NVIDIA's NVFP4).

One departure: where everything is zero ModelOpt's tensor scale is 0 and its block scales 0/0, NaN. Here the tensor
scale is 1 then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from quantizer.nvfp4 import grid
from quantizer.nvfp4.grid import E2M1_MAX

BLOCK: Final = 16
E4M3_MAX: Final = 448.0
E4M3_MIN: Final = 2.0**-9
FOUR_OVER_SIX: Final = 256.0
"""The `norm` that leaves a block room for its scale to be multiplied by 1.5."""


class Nvfp4(NamedTuple):
    """A tensor in NVFP4.

    packed: uint8 [..., in / 2]. scale: float8_e4m3fn [..., in / 16]. tensor_scale: float32 [].
    """

    packed: Tensor
    scale: Tensor
    tensor_scale: Tensor


def block_amax(x: Tensor) -> Tensor:
    """The largest magnitude of each block: float [..., in] to float32 [..., in / 16].

    Raises ValueError if a row is not whole blocks.
    """
    return _blocks(x).abs().amax(dim=-1).float()


def tensor_scale(amax: Tensor, norm: float = E4M3_MAX) -> Tensor:
    """The second scale of a tensor whose largest magnitude is `amax`: float [] to float32 []."""
    scale = amax.float() / (E2M1_MAX * norm)
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def block_scale(block_amax: Tensor, tensor_scale: Tensor) -> Tensor:
    """The first scale, rounded: float32 [..., blocks] and float32 [] to float8_e4m3fn [..., blocks]."""
    scale = block_amax / (E2M1_MAX * tensor_scale)
    return to_e4m3(torch.where(scale == 0, torch.ones_like(scale), scale))


def static_scale(block_amax: Tensor, amax: Tensor, norm: float = E4M3_MAX) -> Tensor:
    """Block scales from amaxes that a search or a training has chosen, as ModelOpt's export rounds them.

    block_amax: float [...]. amax: float [], the tensor's. Returns float8_e4m3fn [...]. The formula is that of
    `block_scale`; the order of its operations is that of `get_weights_scaling_factor_from_quantizer`, with its 1.0 for
    an amax of zero before the division by the tensor's.
    """
    scale = block_amax.float() / E2M1_MAX
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return to_e4m3(scale * norm / (amax.float() / E2M1_MAX))


def to_e4m3(scale: Tensor) -> Tensor:
    """A scale in E4M3, between 2^-9 and 448: float32 [...] to float8_e4m3fn [...]."""
    return scale.clamp(E4M3_MIN, E4M3_MAX).to(torch.float8_e4m3fn)


def step(scale: Tensor, tensor_scale: Tensor) -> Tensor:
    """What the code of 1 stands for, block by block: [..., blocks] and [] to float32 [..., blocks]."""
    return scale.float() * tensor_scale


def quantize(weight: Tensor, tensor_scale: Tensor | None = None, scale: Tensor | None = None) -> Nvfp4:
    """IOBatch a tensor to NVFP4.

    weight: float [..., in], finite, in a multiple of 16. tensor_scale: float32 []; without one, from the weight's own
    amax. scale: float8_e4m3fn [..., in / 16], where a search has chosen it; without one, from each block's amax.
    Raises ValueError with a line that says what is wrong with the weight.
    """
    if not torch.isfinite(weight).all():
        raise ValueError("the weight holds NaN or infinity, which NVFP4 cannot say")
    if tensor_scale is None:
        tensor_scale = _own_scale(weight)
    if scale is None:
        scale = block_scale(block_amax(weight), tensor_scale)
    scaled = _blocks(weight).float() / step(scale, tensor_scale).unsqueeze(-1)
    return Nvfp4(grid.pack(grid.encode(scaled.flatten(-2))), scale, tensor_scale)


def dequantize(tensor: Nvfp4, dtype: torch.dtype = torch.float32) -> Tensor:
    """The numbers a tensor stands for: [..., in] in `dtype`, rounded once from float32."""
    values = _blocks(grid.decode(grid.unpack(tensor.packed)))
    return (values * step(tensor.scale, tensor.tensor_scale).unsqueeze(-1)).flatten(-2).to(dtype)


def round_blocks(x: Tensor, step: Tensor) -> Tensor:
    """What `dequantize(quantize(x))` gives for known steps, without the bytes.

    x: float [..., in]. step: float32 [..., in / 16]. Returns [..., in] in x's dtype.
    """
    steps = step.unsqueeze(-1)
    return (grid.nearest(_blocks(x) / steps) * steps).flatten(-2).to(x.dtype)


def _own_scale(weight: Tensor) -> Tensor:
    return tensor_scale(weight.abs().amax())


def _blocks(x: Tensor) -> Tensor:
    if x.shape[-1] % BLOCK:
        raise ValueError(f"a row of {x.shape[-1]} is not a multiple of {BLOCK}, NVFP4's block")
    return x.reshape(*x.shape[:-1], -1, BLOCK)
