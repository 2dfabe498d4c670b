"""Fake quantization: numbers rounded to what NVFP4 can say, and gradients that pass through.

Forward gives the values that a served model would compute with, in the input's dtype. Backward treats the rounding
as the identity (the straight-through estimator, arXiv 1308.3432); with a `limit`, numbers beyond it get no gradient.
Scales are constants, and no gradient reaches them, but for `fake_learned`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quantizer.nvfp4 import blocks, grid


def fake_dynamic(x: Tensor, amax: Tensor, limit: Tensor | None = None) -> Tensor:
    """Round with block scales taken from `x` itself, under the tensor scale of a given amax.

    x: float [..., in]. amax: float [], the calibrated largest magnitude; what lies beyond it saturates. limit: see
    above, broadcastable to x. Returns [..., in] in x's dtype.
    """
    second = blocks.tensor_scale(amax)
    return fake_static(x, blocks.block_scale(blocks.block_amax(x.detach()), second), second, limit)


def fake_static(x: Tensor, scale: Tensor, tensor_scale: Tensor, limit: Tensor | None = None) -> Tensor:
    """Round with given scales.

    x: float [..., in]. scale: float8_e4m3fn [..., in / 16]. tensor_scale: float32 []. limit: see above, broadcastable
    to x. Returns [..., in] in x's dtype.
    """
    rounded: Tensor = _Round.apply(x, blocks.step(scale, tensor_scale), limit)  # type: ignore[no-untyped-call]  # torch's
    return rounded


def fake_grid(x: Tensor) -> Tensor:
    """Round numbers that are scaled already; beyond 6 they get no gradient.

    x: float [...]. Returns [...] in x's dtype.
    """
    rounded: Tensor = _RoundGrid.apply(x)  # type: ignore[no-untyped-call]  # torch's
    return rounded


def fake_learned(x: Tensor, block_amax: Tensor, tensor_scale: Tensor) -> Tensor:
    """Round under block scales that learn: the gradient of a block's scale is the sum over its numbers of
    (rounded - scaled), and of the end of the grid where a number lies beyond it (LSQ, arXiv 1902.08153).

    x: float [..., in]. block_amax: float32 [..., in / 16]. tensor_scale: float32 []. Returns [..., in] in x's dtype,
    what `fake_static` gives for the same scales, to the bit.
    """
    scale = block_amax / (grid.E2M1_MAX * tensor_scale)
    scale = _RoundScale.apply(torch.where(scale == 0, torch.ones_like(scale), scale))  # type: ignore[no-untyped-call]  # torch's
    steps = (scale * tensor_scale).unsqueeze(-1)
    scaled = x.float().reshape(*x.shape[:-1], -1, blocks.BLOCK) / steps
    rounded: Tensor = (fake_grid(scaled) * steps).flatten(-2).to(x.dtype)
    return rounded


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor, limit: Tensor | None) -> Tensor:
        if limit is not None:
            ctx.save_for_backward(x.abs() <= limit)
        return blocks.round_blocks(x, step)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        for inside in ctx.saved_tensors:
            gradient = torch.where(inside, gradient, 0)
        return gradient, None, None


class _RoundGrid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.abs() <= grid.E2M1_MAX)
        return grid.nearest(x).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inside,) = ctx.saved_tensors
        return torch.where(inside, gradient, 0)


class _RoundScale(torch.autograd.Function):
    """To E4M3 and back to float32; a scale beyond its bounds gets no gradient."""

    @staticmethod
    def forward(ctx: Any, scale: Tensor) -> Tensor:
        ctx.save_for_backward((scale >= blocks.E4M3_MIN) & (scale <= blocks.E4M3_MAX))
        return blocks.to_e4m3(scale).float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inside,) = ctx.saved_tensors
        return torch.where(inside, gradient, 0)
