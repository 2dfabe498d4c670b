"""Activation-aware scales (AWQ, arXiv 2306.00978): a scale for each input channel before the rounding. Pure.

    W x = (W s) (x / s),    s = mean|x|^alpha / share(w)^(1 - alpha)

where share is a weight's part of its block's largest, on average over the rows. s is brought to a geometric middle of
1, and alpha is searched over [0, 1] by the error at the layer's output. ModelOpt runs all data through every layer for
every alpha; the Gram matrix that `calibrate.observe` has summed gives the same error from the weights alone:

    sum |fake(W s) x / s - W x|^2 = trace(dW (X^T X) dW^T),    dW = fake(W s) / s - W

Layers that read the same tensor have to share a scale if it is to be folded away, so they are searched as the one
matrix that a server makes of them. With one layer alone the alphas are those of ModelOpt's awq_lite.

Source: ModelOpt 0.47, quantization/model_calib.py, `awq_lite`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from quantizer.layers.linear import SERVED
from quantizer.nvfp4 import blocks
from quantizer.ptq.calibrate import Seen, trace_error

BOUNDS: Final = (1e-4, 1e4)  # of a scale, before it is brought to the middle
TINY: Final = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True)
class Choice:
    """scale: float32 [in]. losses: by alpha, summed squared error over all tokens."""

    alpha: float
    scale: Tensor
    losses: dict[float, float]


@torch.no_grad()
def search(weights: Sequence[Tensor], seen: Seen, step: float = 0.1) -> Choice:
    """The best alpha for layers that read the same, and its scale.

    weights: [out, in] each, one or more of one width. Raises ValueError if no Gram matrix was recorded.
    """
    weight = torch.cat([one.to(SERVED) for one in weights])
    share = weight_share(weight)
    scales = {alpha: channel_scale(seen.mean, share, alpha) for alpha in alphas(step)}
    errors = torch.stack([_error(weight, scale, seen) for scale in scales.values()])
    losses = dict(zip(scales, errors.tolist(), strict=True))
    best = min(losses, key=lambda alpha: losses[alpha])
    return Choice(best, scales[best], losses)


def alphas(step: float) -> list[float]:
    """0, step, 2 step, …, 1; rounded so that they print as they are meant."""
    return [round(alpha, 6) for alpha in torch.arange(0, 1 + step / 2, step, dtype=torch.float64).tolist()]


def weight_share(weight: Tensor) -> Tensor:
    """Each column's size as a part of its block's largest, on average over the rows: [out, in] to float32 [in].

    Computed in the weight's own type, as ModelOpt does, whose rounding would else now and then tip an alpha.
    """
    size = weight.abs().unflatten(-1, (-1, blocks.BLOCK))
    largest = size.amax(dim=-1, keepdim=True)
    return (size / (largest + TINY)).flatten(-2).mean(dim=0).float()


def channel_scale(mean: Tensor, share: Tensor, alpha: float) -> Tensor:
    """The scales of an alpha, with 1 between the smallest and the largest: float32 [in]."""
    scale = (mean.pow(alpha) / (share.pow(1 - alpha) + TINY)).clamp(*BOUNDS)
    return scale / (scale.amax() * scale.amin()).sqrt()


def _error(weight: Tensor, scale: Tensor, seen: Seen) -> Tensor:
    """weight: BF16 [out, in]. What rounding it under these scales costs at the output. Inputs are multiplied by the rounded
    inverse of the scale, as ModelOpt multiplies them: a fold divides, and loses less by it than alphas differ by."""
    served, inverse = scale.to(SERVED), (1 / scale).to(SERVED)
    scaled = weight * served
    largest = blocks.block_amax(scaled)
    second = blocks.tensor_scale(largest.amax())
    step = blocks.step(blocks.block_scale(largest, second), second)
    return trace_error(blocks.round_blocks(scaled, step).float() * inverse.float() - weight.float(), seen)
