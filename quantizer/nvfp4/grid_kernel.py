"""`quantizer.nvfp4.grid.nearest` within a Triton kernel."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import triton
import triton.language as tl

from quantizer.nvfp4 import grid

_LEAST: Final = tl.constexpr(grid.VALUES[0])
_BORDERS: Final = tl.constexpr(grid.BORDERS)
_GAPS: Final = tl.constexpr(tuple(high - low for low, high in pairwise(grid.VALUES)))
_COUNT: Final = tl.constexpr(len(grid.BORDERS))


@triton.jit
def nearest(x):  # type: ignore[no-untyped-def]  # Triton looks annotations up as globals
    """The nearest E2M1 value of finite float32 numbers. Sums of gaps are exact."""
    value = tl.full(x.shape, _LEAST, tl.float32)
    for k in tl.static_range(_COUNT):
        value += tl.where(x > _BORDERS[k], _GAPS[k], 0.0)
    return value
