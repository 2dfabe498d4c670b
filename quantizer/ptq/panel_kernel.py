"""A panel of columns rounded with error feedback in one Triton kernel: `quantizer.ptq.feedback.round_panel`.

A program holds `ROWS` rows with all columns of the panel in registers. Registers cannot be indexed: column j is a masked sum,
which is exact. Every operation is rounded by itself, so the result is the same to the bit on any GPU.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from quantizer.nvfp4 import grid

_LEAST: Final = tl.constexpr(grid.VALUES[0])
_BORDERS: Final = tl.constexpr(grid.BORDERS)
_GAPS: Final = tl.constexpr(tuple(high - low for low, high in pairwise(grid.VALUES)))
_COUNT: Final = tl.constexpr(len(grid.BORDERS))
ROWS: Final = 32
OPTIONS: Final = {"num_warps": 4, "enable_fp_fusion": False}
"""With 128 columns a tile takes 32 registers of a thread."""


def round_panel(left: Tensor, whole: Tensor, steps: Tensor, factor: Tensor, made: Tensor) -> Tensor:
    """As `feedback.round_panel`, except that `left` stays as it is."""
    columns, rows = left.shape
    assert factor.stride(1) == 1 and all(one.is_contiguous() for one in (left, whole, steps, made))
    error = left.new_empty(left.shape)
    with torch.cuda.device_of(left):
        _panel[(triton.cdiv(rows, ROWS),)](
            left, whole, steps, factor, made, error, rows, factor.stride(0),
            COLUMNS=columns, WIDTH=triton.next_power_of_2(columns), ROWS=ROWS, **OPTIONS,
        )  # fmt: skip
    return error


@triton.jit
def _panel(  # type: ignore[no-untyped-def]  # Triton looks annotations up as globals
    left, whole, steps, factor, made, error, rows, stride,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    there = row < rows
    both = (column[:, None] < COLUMNS) & there[None, :]
    tile = tl.load(left + column[:, None] * rows + row[None, :], mask=both, other=0.0)
    for j in range(COLUMNS):
        at = j * rows + row
        step = tl.load(steps + at, mask=there, other=1.0)
        wanted = tl.load(whole + at, mask=there, other=0.0)
        spread = tl.load(factor + j * stride + column, mask=(column > j) & (column < COLUMNS), other=0.0)
        now = tl.sum(tl.where(column[:, None] == j, tile, 0.0), axis=0)
        value = nearest(tl.div_rn(now, step)) * step
        off = wanted - value
        tl.store(made + at, value, mask=there)
        tl.store(error + at, off, mask=there)
        tile += spread[:, None] * off[None, :]


@triton.jit
def nearest(x):  # type: ignore[no-untyped-def]  # Triton looks annotations up as globals
    """The nearest E2M1 value of finite float32 numbers. Sums of gaps are exact."""
    value = tl.full(x.shape, _LEAST, tl.float32)
    for k in tl.static_range(_COUNT):
        value += tl.where(x > _BORDERS[k], _GAPS[k], 0.0)
    return value
