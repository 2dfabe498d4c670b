"""The search for block scales in one Triton kernel: `quantizer.ptq.scales.search`.

A program holds `BLOCKS` blocks of 16 weights in registers and tries all codes on them. The sixteen squares are added in another
order than torch's: of two scales whose errors are alike up to float32's rounding, another one may be chosen.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from quantizer.nvfp4.blocks import BLOCK
from quantizer.nvfp4.grid_kernel import nearest

BLOCKS: Final = 64
OPTIONS: Final = {"num_warps": 4, "enable_fp_fusion": False}


def search(weight: Tensor, first: Tensor, tensor_scale: Tensor, codes: range, largest: int) -> Tensor:
    """As `scales.search`."""
    weight, first = weight.contiguous(), first.contiguous()
    values = torch.arange(largest + 1, device=weight.device).to(torch.uint8).view(torch.float8_e4m3fn).float()
    found = torch.empty_like(first)
    with torch.cuda.device_of(weight):
        _search[(triton.cdiv(first.numel(), BLOCKS),)](
            weight, first, values, tensor_scale, found, first.numel(),
            LOW=codes.start, HIGH=codes.stop, LARGEST=largest, BLOCKS=BLOCKS, WIDTH=BLOCK, **OPTIONS,
        )  # fmt: skip
    return found.to(torch.uint8).view(torch.float8_e4m3fn)


@triton.jit
def _search(  # type: ignore[no-untyped-def]  # Triton looks annotations up as globals
    weight, first, values, tensor_scale, found, count,
    LOW: tl.constexpr, HIGH: tl.constexpr, LARGEST: tl.constexpr, BLOCKS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    there = block < count
    at = block[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    x = tl.load(weight + at, mask=there[:, None], other=0.0).to(tl.float32)
    start = tl.load(first + block, mask=there, other=1)
    second = tl.load(tensor_scale)
    best = tl.minimum(tl.maximum(start + LOW, 1), LARGEST)
    least = tl.full((BLOCKS,), float("inf"), tl.float32)
    for offset in range(LOW, HIGH):
        code = tl.minimum(tl.maximum(start + offset, 1), LARGEST)
        step = (tl.load(values + code) * second)[:, None]
        off = nearest(tl.div_rn(x, step)) * step - x
        error = tl.sum(off * off, axis=1)
        better = error < least
        best = tl.where(better, code, best)
        least = tl.where(better, error, least)
    tl.store(found + block, best, mask=there)
