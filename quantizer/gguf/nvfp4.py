"""NVFP4 in GGUF: the same codes and scales in other places, so no bit is lost. Pure.

GGML_TYPE_NVFP4 takes 64 numbers together: four scales, then 32 bytes of codes.

    byte 0-3     the scales of four blocks of 16, E4M3 without a sign
    byte 4-35    block by block 8 bytes: byte j has column j in the low nibble and column j + 8 in the high one

ModelOpt packs column 2 j low and 2 j + 1 high. The tensor's own scale is no part of it: it goes into a tensor `.scale`
beside the weight, which llama.cpp multiplies the product by, and the input's into `.input_scale`. ggml's own packer
(`ggml_quantize_chunk`) is of no use: it rounds anew, and turns every block scale of 248 and more into 448.

Sources: llama.cpp, conversion/base.py (`_nvfp4_pack`), ggml/src/ggml-common.h (block_nvfp4); gguf-py/gguf/quants.py.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import SourceError
from quantizer.nvfp4 import grid
from quantizer.nvfp4.blocks import BLOCK, Nvfp4

SUPER: Final = 64
"""Numbers that a row has to come in multiples of."""


def pack(name: str, tensor: Nvfp4) -> np.ndarray:
    """A layer's codes and block scales: uint8 [out, in / 64 * 36].

    Raises SourceError if a row is not whole superblocks, or a block scale is negative or NaN, which the type cannot say.
    """
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


def move(name: str, tensor: Nvfp4, rows: Tensor | None, columns: Tensor | None) -> Nvfp4:
    """Rows and columns in another order (the old place of each new one); columns only in whole blocks of 16.

    Raises SourceError if the columns of a block would part.
    """
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
    return Nvfp4(packed.contiguous(), scale.contiguous().view(torch.float8_e4m3fn), tensor.tensor_scale)
