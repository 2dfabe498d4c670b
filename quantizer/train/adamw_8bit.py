"""A step of AdamW on torchao's 8-bit moments in one pass over memory, for torch.compile.

torchao's own step finds a code by a binary search in a table of 256 values. These (`create_dynamic_map`, arXiv 1511.04561) follow a
rule, so the nearest one can be computed: seven decades, of which the i-th has `first * 2^i` evenly spaced values, the middles of bins
that divide 0.1 ... 1 of it; and 0 and 1. first is 1 for values with a sign, 2 without.

All tensors have a row for each block of 256 elements and static shapes, so that a compiler makes one kernel. The noise of stochastic
rounding is a hash of an element's place and a seed. Codes and scales are torchao's, so checkpoints and memory are, too.
"""

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

BLOCK: Final = 256
"""Elements under one scale."""
DECADES: Final = 7
LEAST: Final = 1e-12
"""The smallest scale, as torchao's."""


class Constants(NamedTuple):
    """What does not change in a run. clip: 0 for none."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip: float


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
    """Move a weight and its moments, in place.

    weight, gradient: float [n, 256]. first, second: codes, uint8 [n, 256]; scales, float32 [n]; values of the codes, float32 [256].
    numbers: the learning rate, 1 - beta1^step, 1 - beta2^step. square, share: the squared length of the gradient and its part of the
    whole's, for clipping. seed: of the noise for a BF16 weight.
    """
    beta1, beta2, eps, weight_decay, clip = constants
    grad, rate = gradient.float(), numbers[0]
    if clip > 0:
        grad = grad * (clip * share.sqrt() / (square.sqrt() + 1e-6)).clamp(max=1.0)
    mean, spread = decode(*first), decode(*second)
    mean = mean + (grad - mean) * (1 - beta1)
    spread = spread + (grad * grad - spread) * (1 - beta2)
    for moment, held, signed in ((mean, first, True), (spread, second, False)):
        scale = moment.abs().amax(-1).clamp(min=LEAST)
        held[0].copy_(encode(moment / scale[:, None], signed))
        held[1].copy_(scale)
    size = spread.sqrt() / numbers[2].sqrt() + eps
    moved = weight.float()
    moved = moved - rate * weight_decay * moved - rate * (mean / numbers[1]) / size
    weight.copy_(_rounded(moved, seed) if weight.dtype == torch.bfloat16 else moved)


def decode(codes: Tensor, scale: Tensor, values: Tensor) -> Tensor:
    """The moment: uint8 [n, 256] to float32 [n, 256]."""
    return values[codes.int()] * scale[:, None]


def encode(x: Tensor, signed: bool) -> Tensor:
    """The codes of the nearest values: float32 [...], from -1 or 0 to 1, to uint8 [...]."""
    size, first = x.abs(), 1 if signed else 2
    factor, count = torch.full_like(x, 10.0 ** (DECADES - 1)), torch.full_like(x, float(first))
    for decade in range(1, DECADES):
        bins = float(first << decade)
        # Halfway between the last value of a decade and the first of the next, whose bins have unlike widths.
        above = size >= 10.0 ** (decade - DECADES) * (1 + 1.8 / bins)
        factor = torch.where(above, 10.0 ** (DECADES - 1 - decade), factor)
        count = torch.where(above, bins, count)
    place = ((size * factor - 0.1) * count / 0.9).floor().clamp(min=0.0)
    place = torch.minimum(place, count - 1) + count - (first - 1)
    least = (0.1 + 0.45 / first) * 10.0 ** (1 - DECADES)
    place = torch.where(size < 0.5 * least, 0.0, place)
    top = 1 - 0.225 / (first << (DECADES - 1))  # halfway between the largest but one and 1
    if signed:
        place = 127 + torch.where(x < 0, -place, place)
    return torch.where(x >= top, 255.0, place).to(torch.uint8)


def _rounded(x: Tensor, seed: Tensor) -> Tensor:
    """To one of the two neighbours in BF16, by chance, so that the mean is x: float32 [n, 256]."""
    row, column = (torch.arange(size, dtype=torch.int32, device=x.device) for size in x.shape)
    noise = _hash((row[:, None] * BLOCK + column) ^ _hash(seed)) & 0xFFFF
    return ((x.view(torch.int32) + noise) & -0x10000).view(torch.float32).bfloat16()


def _hash(x: Tensor) -> Tensor:
    """Numbers that look like chance: int32 to int32. Source: github.com/skeeto/hash-prospector, "lowbias32"."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * (0x846CA68B - 2**32)
    return x ^ ((x >> 16) & 0xFFFF)


_ONE_KERNEL: Final[dict[str, Any]] = {"realize_opcount_threshold": 1000, "realize_reads_threshold": 100}
"""Inductor's thresholds for what it computes once and writes to memory. Here everything that is computed twice would be so in one
kernel, where it is computed once."""
_compiled: list[Any] = []


def one_kernel() -> dict[str, Any]:
    """`_ONE_KERNEL`, as far as this torch has these switches."""
    from torch._inductor import list_options

    known = list_options()
    return {name: value for name, value in _ONE_KERNEL.items() if name in known}


def compiled_step() -> Any:
    """`step` by torch.compile: a kernel for each number of blocks, of which a model has a handful."""
    if not _compiled:
        import torch._dynamo

        torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
        _compiled.append(torch.compile(step, dynamic=False, options=one_kernel()))
    return _compiled[0]
