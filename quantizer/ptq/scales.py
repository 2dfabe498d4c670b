"""Search better block scales for weights, by the squared error of the weights. It costs nothing when serving.

`sweep` finds the best of E4M3's 126 scales for every block, without trying all of them. Let c be the smallest scale
whose largest code, 6, reaches the block's largest weight.

* A scale of 2c or more is no better than half of it. The half reaches the largest weight too, and its grid points
  0, .5, 1, 1.5, 2, 3, 4, 6 include all points of the double that are within reach. Halves are in E4M3, except for a
  few codes below 16.
* A scale below c / 5.3 cuts more than 0.78 off the largest weight, while at c, which exceeds what the largest
  weight needs by an eighth at most, no weight is off by more than one step: 16 * (1.125 / 6)^2 < 0.78^2.

So 20 codes below c and 14 above are sufficient (8 codes span a power of two). Of equally good scales the smaller
one is taken, as in ModelOpt, and the result equals that of its sweep, block by block.

`four_over_six` (arXiv 2512.02010) tries two scales: one that puts the largest weight at code 6, and one that puts
it at code 4, where the grid has finer steps for it.

Source: ModelOpt 0.47, quantization/calib/mse.py and the recipe nvfp4_four_over_six.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import torch
from torch import Tensor, nn

from quantizer.layers.linear import SERVED_DTYPE, nvfp4_layers
from quantizer.nvfp4 import blocks
from quantizer.nvfp4.blocks import BLOCK, E4M3_MAX, FOUR_OVER_SIX
from quantizer.nvfp4.grid import E2M1_MAX, nearest
from quantizer.recipes.recipe import Scales

CODES: Final = range(-20, 15)
"""E4M3 codes that are tried, relative to the one that just reaches the largest weight."""
LARGEST_CODE: Final = 126  # 448; 127 is NaN
AT_SIX_AND_FOUR: Final = (1.0, 1.5)
ROWS: Final = 2**22  # weights per slice, to limit the memory of a search


def norm_of(scales: Scales) -> float:
    """The norm that a layer needs for a method of finding scales; for `attach`."""
    return FOUR_OVER_SIX if scales == "four_over_six" else E4M3_MAX


@torch.no_grad()
def set_scales(model: nn.Module, scales: Scales) -> None:
    """Find the block scales of every NVFP4 layer from its current weights, under the shared amax."""
    for layer in nvfp4_layers(model).values():
        if scales == "max":
            layer.fix_scales(None)
        elif scales == "mse":
            layer.fix_scales(sweep(layer.weight.to(SERVED_DTYPE), layer.tensor_scale()))
        else:
            layer.fix_scales(four_over_six(layer.weight.to(SERVED_DTYPE), layer.weight_amax))


def sweep(weight: Tensor, tensor_scale: Tensor) -> Tensor:
    """The scale with the least squared error for each block: float8_e4m3fn [out, in / 16]; of equally good ones the smallest."""
    return torch.cat([_sweep(part, tensor_scale) for part in _parts(weight)])


def four_over_six(weight: Tensor, amax: Tensor) -> Tensor:
    """The better of two scales for each block, under the norm of 256: float8_e4m3fn [out, in / 16]."""
    return torch.cat([_four_over_six(part, amax) for part in _parts(weight)])


def _sweep(weight: Tensor, tensor_scale: Tensor) -> Tensor:
    first = _reaching(blocks.block_amax(weight), tensor_scale)
    return _best(weight, tensor_scale, (_decode((first + code).clamp(1, LARGEST_CODE)) for code in CODES))


def _four_over_six(weight: Tensor, amax: Tensor) -> Tensor:
    largest = blocks.block_amax(weight)
    tried = (blocks.static_scale(largest * more, amax, FOUR_OVER_SIX) for more in AT_SIX_AND_FOUR)
    return _best(weight, blocks.tensor_scale(amax, FOUR_OVER_SIX), tried)


def _best(weight: Tensor, tensor_scale: Tensor, tried: Iterable[Tensor]) -> Tensor:
    """The scale with the least squared error for each block; of equally good ones, the first."""
    x = weight.float().unflatten(-1, (-1, BLOCK))
    best, least = None, None
    for scale in tried:
        step = blocks.step(scale, tensor_scale).unsqueeze(-1)
        error = (nearest(x / step) * step - x).square().sum(dim=-1)
        if best is None or least is None:
            best, least = scale.float(), error
        else:
            better = error < least
            best, least = torch.where(better, scale.float(), best), torch.where(better, error, least)
    assert best is not None
    return blocks.to_e4m3(best)


def _reaching(amax: Tensor, tensor_scale: Tensor) -> Tensor:
    """The code of the smallest scale whose 6 reaches an amax: float32 [...] to int32 [...]."""
    wanted = (amax / (E2M1_MAX * tensor_scale)).clamp(blocks.E4M3_MIN, E4M3_MAX)
    code = wanted.to(torch.float8_e4m3fn).view(torch.uint8).int()
    return code + (_decode(code).float() < wanted)


def _decode(code: Tensor) -> Tensor:
    """E4M3 codes to their values: int [...] to float8_e4m3fn [...]."""
    return code.to(torch.uint8).view(torch.float8_e4m3fn)


def _parts(weight: Tensor) -> Iterator[Tensor]:
    yield from weight.split(max(1, ROWS // weight.shape[-1]))
