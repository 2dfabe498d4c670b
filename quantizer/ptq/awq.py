"""Activation-aware weight quantization (AWQ, arXiv 2306.00978): scale each input channel before rounding.

    W x = (W s) (x / s),    s = mean|x|^alpha / share(w)^(1 - alpha)

where share is the size of a weight relative to the largest of its block, averaged over the rows; s is normalized so that the
geometric mean of its extremes is 1. alpha is searched over [0, 1] for the smallest error at the layer's output, which the Gram
matrix of `calibrate.observe` gives from the weights alone:

    sum |fake(W s) x / s - W x|^2 = trace(dW (X^T X) dW^T),    dW = fake(W s) / s - W

Layers that read the same tensor are searched as one matrix. For one layer, the alphas are those of ModelOpt's awq_lite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from quantizer.layers.linear import SERVED_DTYPE
from quantizer.nvfp4 import blocks
from quantizer.ptq.calibrate import InputStats, trace_error

BOUNDS: Final = (1e-4, 1e4)  # of a scale, before it is normalized
TINY: Final = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True)
class AwqScale:
    """The result of a search. scale: float32 [in]. losses: by alpha, the squared error summed over all tokens."""

    alpha: float
    scale: Tensor
    losses: dict[float, float]


@torch.no_grad()
def search(
    weights: Sequence[Tensor], seen: InputStats, step: float = 0.1, rounded_inputs: bool = False
) -> AwqScale:
    """The best alpha and its scale for layers that read the same tensor, weights [out, in] each. Raises ValueError."""
    weight = torch.cat([one.to(SERVED_DTYPE) for one in weights])
    share = weight_share(weight)
    scales = {alpha: channel_scale(seen.mean, share, alpha) for alpha in alphas(step)}
    error = _served_error if rounded_inputs else _error
    errors = torch.stack([error(weight, scale, seen) for scale in scales.values()])
    losses = dict(zip(scales, errors.tolist(), strict=True))
    best = min(losses, key=lambda alpha: losses[alpha])
    return AwqScale(best, scales[best], losses)


def alphas(step: float) -> list[float]:
    """0, step, 2 step, …, 1, rounded to the decimals that they are written with."""
    return [round(alpha, 6) for alpha in torch.arange(0, 1 + step / 2, step, dtype=torch.float64).tolist()]


def weight_share(weight: Tensor) -> Tensor:
    """The size of each column relative to the largest of its block, averaged over rows: [out, in] to float32 [in]."""
    size = weight.abs().unflatten(-1, (-1, blocks.BLOCK))
    largest = size.amax(dim=-1, keepdim=True)
    return (size / (largest + TINY)).flatten(-2).mean(dim=0).float()


def channel_scale(mean: Tensor, share: Tensor, alpha: float) -> Tensor:
    """The scales for an alpha, with 1 in the geometric middle of smallest and largest: float32 [in]."""
    scale = (mean.pow(alpha) / (share.pow(1 - alpha) + TINY)).clamp(*BOUNDS)
    return scale / (scale.amax() * scale.amin()).sqrt()


def _error(weight: Tensor, scale: Tensor, seen: InputStats) -> Tensor:
    """The squared error at the output from rounding `weight` (BF16 [out, in]) under these scales."""
    served, inverse = scale.to(SERVED_DTYPE), (1 / scale).to(SERVED_DTYPE)
    return trace_error(_rounded(weight * served).float() * inverse.float() - weight.float(), seen)


def _served_error(weight: Tensor, scale: Tensor, seen: InputStats) -> Tensor:
    """The same on some tokens, whose own rounding counts, too."""
    rows = torch.cat(seen.rows)
    inputs = _rounded((rows / scale).to(SERVED_DTYPE)).float()
    made = inputs @ _rounded(weight * scale.to(SERVED_DTYPE)).float().T
    return (made - rows.float() @ weight.float().T).square().sum()


def _rounded(values: Tensor) -> Tensor:
    """[..., in] in NVFP4, under scales of its own."""
    largest = blocks.block_amax(values)
    second = blocks.tensor_scale(largest.amax())
    return blocks.round_blocks(values, blocks.step(blocks.block_scale(largest, second), second))
