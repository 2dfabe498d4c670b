"""NVFP4 in GGUF: the same codes and scales in another layout, so that the conversion is lossless.

GGML_TYPE_NVFP4 stores 64 numbers together:

    byte 0-3     the scales of four blocks of 16, E4M3 without a sign
    byte 4-35    8 bytes for each block: byte j has column j in the low nibble and column j + 8 in the high one

ModelOpt packs column 2 j in the low and 2 j + 1 in the high nibble. The tensor scale is stored in a tensor `.scale` beside the
weight, the input scale in `.input_scale`. ggml's own packer cannot be used: it rounds again. Sources: llama.cpp,
conversion/base.py (`_nvfp4_pack`), ggml/src/ggml-common.h (block_nvfp4); gguf-py/gguf/quants.py.
"""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import SourceError
from quantizer.nvfp4 import grid
from quantizer.nvfp4.blocks import BLOCK, Nvfp4Tensor

SUPER: Final = 64
"""Rows must be multiples of this many numbers."""


def pack(name: str, tensor: Nvfp4Tensor) -> np.ndarray:
    """A layer's codes and block scales: uint8 [out, in / 64 * 36]. Raises SourceError if the type cannot represent them."""
    rows, columns = tensor.packed.shape[0], 2 * tensor.packed.shape[-1]
    if columns % SUPER:
        raise SourceError(
            f"{name}: rows of {columns} are not whole blocks of {SUPER}, which GGUF's NVFP4 needs"
        )
    scale = tensor.scale.view(torch.uint8)
    if (scale > 0x7E).any():  # the sign bit, or NaN (0x7F)
        raise SourceError(f"{name}: has block scales that are negative or NaN")
    codes = grid.unpack(tensor.packed).reshape(rows, -1, BLOCK)
    halves = codes[..., : BLOCK // 2] | (codes[..., BLOCK // 2 :] << 4)
    parts = (scale.reshape(rows, -1, 4), halves.reshape(rows, -1, SUPER // 2))
    return torch.cat(parts, dim=-1).reshape(rows, -1).numpy()


def move(name: str, tensor: Nvfp4Tensor, rows: Tensor | None, columns: Tensor | None) -> Nvfp4Tensor:
    """Permute rows and columns, given the old index of each new one. Raises SourceError if that would split a block."""
    packed, scale = tensor.packed, tensor.scale.view(torch.uint8)
    if rows is not None:
        packed, scale = packed[rows], scale[rows]
    if columns is not None:
        starts = columns.reshape(-1, BLOCK)[:, :1]
        if (
            not torch.equal(starts + torch.arange(BLOCK), columns.reshape(-1, BLOCK))
            or (starts % BLOCK).any()
        ):
            raise SourceError(
                f"{name}: its heads are narrower than a block of {BLOCK}, so they cannot be moved"
            )
        order = (starts // BLOCK).flatten()
        packed = packed.reshape(len(packed), -1, BLOCK // 2)[:, order].reshape(packed.shape)
        scale = scale[:, order]
    return Nvfp4Tensor(packed.contiguous(), scale.contiguous().view(torch.float8_e4m3fn), tensor.tensor_scale)
