# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# Triton's language has no annotations.
"""`quantizer.train.adamw_8bit.step` as one Triton kernel; importing it needs triton, which CUDA builds of torch bring along.

A program moves `ROWS` blocks of 256 elements. See that module for the arithmetic. A contender, not used in training: under
Triton's interpreter it equals the other to the bit, on a GPU nobody has run it yet.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from quantizer.train.adamw_8bit import BLOCK, Constants

ROWS: Final = 4


def step(
    weight: Tensor,
    gradient: Tensor,
    first: tuple[Tensor, Tensor, Tensor],
    second: tuple[Tensor, Tensor, Tensor],
    numbers: Tensor,
    square: Tensor,
    share: Tensor,
    seed: Tensor,
    constants: Constants,
) -> None:
    """As `quantizer.train.adamw_8bit.step`."""
    beta1, beta2, eps, weight_decay, clip = constants
    _step[(triton.cdiv(len(weight), ROWS),)](
        weight, gradient, *first, *second, numbers, square, share, seed, len(weight), beta1, beta2, eps, weight_decay,
        clip, weight.dtype == torch.bfloat16, ROWS, BLOCK,
    )  # fmt: skip


@triton.jit
def _step(
    weight, gradient, codes1, scale1, values1, codes2, scale2, values2, numbers, square, share, seed, rows,
    beta1, beta2, eps, weight_decay, clip, CHANCE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    real, inside = row < rows, (row < rows)[:, None]
    grad = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
    limit = clip * tl.sqrt(tl.load(share)) / (tl.sqrt(tl.load(square)) + 1e-6)
    grad = grad * tl.where(clip > 0, tl.minimum(limit, 1.0), 1.0)
    mean = tl.load(values1 + tl.load(codes1 + place, mask=inside, other=0).to(tl.int32))
    mean = mean * tl.load(scale1 + row, mask=real, other=0.0)[:, None]
    mean = mean + (grad - mean) * (1 - beta1)
    spread = tl.load(values2 + tl.load(codes2 + place, mask=inside, other=0).to(tl.int32))
    spread = spread * tl.load(scale2 + row, mask=real, other=0.0)[:, None]
    spread = spread + (grad * grad - spread) * (1 - beta2)
    largest1 = tl.maximum(tl.max(tl.abs(mean), 1), 1e-12)
    largest2 = tl.maximum(tl.max(spread, 1), 1e-12)
    tl.store(scale1 + row, largest1, mask=real)
    tl.store(scale2 + row, largest2, mask=real)
    tl.store(codes1 + place, _encode(mean / largest1[:, None], True), mask=inside)
    tl.store(codes2 + place, _encode(spread / largest2[:, None], False), mask=inside)
    rate = tl.load(numbers)
    moved = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    size = tl.sqrt(spread) / tl.sqrt(tl.load(numbers + 2)) + eps
    moved = moved - rate * weight_decay * moved - rate * (mean / tl.load(numbers + 1)) / size
    if CHANCE:
        noise = _hash(place ^ _hash(tl.load(seed))) & 0xFFFF
        moved = ((moved.to(tl.int32, bitcast=True) + noise) & -65536).to(tl.float32, bitcast=True)
    tl.store(weight + place, moved.to(weight.dtype.element_ty), mask=inside)


@triton.jit
def _encode(x, SIGNED: tl.constexpr):
    FIRST: tl.constexpr = 1 if SIGNED else 2
    size = tl.abs(x)
    factor, count = tl.full(x.shape, 1e6, tl.float32), tl.full(x.shape, FIRST, tl.float32)
    above, bins = 1e-7, 1.0 * FIRST
    for _ in tl.static_range(6):
        above, bins = above * 10, bins * 2
        beyond = size >= above * (1 + 1.8 / bins)
        factor = tl.where(beyond, 0.1 / above, factor)
        count = tl.where(beyond, bins, count)
    index = tl.maximum(tl.floor((size * factor - 0.1) * count / 0.9), 0.0)
    index = tl.minimum(index, count - 1) + count - (FIRST - 1)
    index = tl.where(size < 0.5 * (0.1 + 0.45 / FIRST) * 1e-6, 0.0, index)
    if SIGNED:
        index = 127 + tl.where(x < 0, -index, index)
    return tl.where(x >= 1 - 0.225 / (64 * FIRST), 255.0, index).to(tl.uint8)


@triton.jit
def _hash(x):
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * -2073254261
    return x ^ ((x >> 16) & 0xFFFF)
