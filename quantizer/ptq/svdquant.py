"""Report what a low-rank branch beside NVFP4 would save. No folder is written, because no server could load it.

SVDQuant (arXiv 2411.05007) keeps the largest singular components in BF16: y = (Q(W - A B) + A B) x.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from quantizer.layers.linear import SERVED_DTYPE, NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks
from quantizer.ptq.calibrate import InputStats, trace_error

WHY_NOT: Final = (
    "svdquant is a report: no server loads its branch (vLLM knows no NVFP4_SVD) and it cannot be folded into NVFP4; "
    "take mse or awq_lite instead"
)
_MORE: Final = 8  # additional singular vectors, for the accuracy of the randomized decomposition
_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving in one layer. plain, branch: the squared error of the output without and with the branch, relative
    to the output. bits: per weight with the branch; 4.5 without it."""

    layer: str
    plain: float
    branch: float
    bits: float


@torch.no_grad()
def report(model: nn.Module, seen: dict[str, InputStats], rank: int) -> list[Saving]:
    """What a branch of this rank would save in every layer; `seen` has every layer's Gram matrix."""
    return [_saving(name, layer, seen[name], rank) for name, layer in nvfp4_layers(model).items()]


def _saving(name: str, layer: NVFP4Linear, seen: InputStats, rank: int) -> Saving:
    weight = layer.weight.float()
    rank = min(rank, *weight.shape)
    branch = low_rank(weight, rank)
    rest = (weight - branch).to(SERVED_DTYPE)
    whole = trace_error(weight, seen)
    plain = trace_error(layer.fake_weight().float() - weight, seen)
    joined = trace_error(blocks.dequantize(blocks.quantize(rest)) + branch - weight, seen)
    extra = 16 * rank * sum(weight.shape) / weight.numel()
    return Saving(name, float(plain / whole), float(joined / whole), 4.5 + extra)


def low_rank(weight: torch.Tensor, rank: int) -> torch.Tensor:
    """The nearest matrix of a given rank, as BF16 factors: float32 [out, in] to float32 [out, in]."""
    with torch.random.fork_rng(devices=[weight.device] if weight.is_cuda else []):
        torch.manual_seed(0)
        u, s, v = torch.svd_lowrank(weight, q=min(rank + _MORE, *weight.shape), niter=_ROUNDS)
    root = s[:rank].sqrt()
    a, b = (u[:, :rank] * root).to(SERVED_DTYPE), (v[:, :rank] * root).T.to(SERVED_DTYPE)
    return a.float() @ b.float()
