"""Fake quantization: round numbers to NVFP4 values in the forward pass, and let gradients through.

The backward pass treats the rounding as the identity (straight-through estimator, arXiv 1308.3432). Scales are constants, except
in `fake_learned`. Results have x's dtype.
"""

from typing import Any

import torch
from torch import Tensor

from quantizer.nvfp4 import blocks, grid


def fake_dynamic(x: Tensor, amax: Tensor) -> Tensor:
    """Round x [..., in] with block scales computed from `x` itself, and a tensor scale from a calibrated amax []."""
    second = blocks.tensor_scale(amax)
    return fake_static(x, blocks.block_scale(blocks.block_amax(x.detach()), second), second)


def fake_static(x: Tensor, scale: Tensor, tensor_scale: Tensor) -> Tensor:
    """Round x [..., in] with given block scales [..., in / 16] and a tensor scale []."""
    rounded: Tensor = _Round.apply(x, blocks.step(scale, tensor_scale))  # type: ignore[no-untyped-call]  # torch's
    return rounded


def fake_grid(x: Tensor) -> Tensor:
    """Round numbers that are already scaled; numbers beyond 6 get no gradient."""
    rounded: Tensor = _RoundGrid.apply(x)  # type: ignore[no-untyped-call]  # torch's
    return rounded


def fake_learned(x: Tensor, block_amax: Tensor, tensor_scale: Tensor) -> Tensor:
    """Round under trainable block scales [..., in / 16] (LSQ, arXiv 1902.08153); equal to `fake_static` to the bit.

    The gradient of a block's scale is the sum over its numbers of (rounded - scaled), and of the largest grid value beyond it.
    """
    scale = block_amax / (grid.E2M1_MAX * tensor_scale)
    scale = _RoundScale.apply(torch.where(scale == 0, torch.ones_like(scale), scale))  # type: ignore[no-untyped-call]  # torch's
    steps = (scale * tensor_scale).unsqueeze(-1)
    scaled = x.float().reshape(*x.shape[:-1], -1, blocks.BLOCK) / steps
    rounded: Tensor = (fake_grid(scaled) * steps).flatten(-2).to(x.dtype)
    return rounded


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor) -> Tensor:
        return blocks.round_blocks(x, step)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


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
    """Round to E4M3 and convert back to float32; a scale outside the bounds gets no gradient."""

    @staticmethod
    def forward(ctx: Any, scale: Tensor) -> Tensor:
        ctx.save_for_backward((scale >= blocks.E4M3_MIN) & (scale <= blocks.E4M3_MAX))
        return blocks.to_e4m3(scale).float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inside,) = ctx.saved_tensors
        return torch.where(inside, gradient, 0)
