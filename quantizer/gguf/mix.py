"""Which type each tensor gets: llama.cpp's mixes, by name. Pure.

Q4_K_M is llama-quantize's default and Annie's production format. Its mix is not written down in any
file format; it is code: src/llama-quant.cpp, `llama_tensor_get_type`, and the lambda `use_more_bits`
in it. For a dense model with more than one block it comes to this:

* the output matrix, or the embedding where it is also the output: Q6_K
* attn_v and ffn_down of the blocks that `use_more_bits` picks (the first eighth, the last eighth,
  and every third between): Q6_K
* every other matrix, a separate embedding included: Q4_K
* vectors (norms): F32, always

llama.cpp counts attn_v and ffn_down tensors as they come; in a file written in block order, as ours,
that count is the block's number.
"""

from __future__ import annotations

import re

from gguf import GGMLQuantizationType as Type

_BLOCK = re.compile(r"blk\.(\d+)\.(attn_v|ffn_down)\.weight")


def use_more_bits(block: int, blocks: int) -> bool:
    """llama.cpp's pick of blocks that deserve more bits; integer division as in C++."""
    eighth = blocks // 8
    return block < eighth or block >= 7 * blocks // 8 or (block - eighth) % 3 == 2


def q4_k_m(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """The type of a tensor in Q4_K_M. `tied`: the embedding is the output matrix as well."""
    if dimensions < 2:
        return Type.F32
    if name == "output.weight" or (tied and name == "token_embd.weight"):
        return Type.Q6_K
    found = _BLOCK.fullmatch(name)
    if found and use_more_bits(int(found[1]), blocks):
        return Type.Q6_K
    return Type.Q4_K


def f16(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """The type of a tensor in an F16 file: matrices F16, vectors F32 (as convert_hf_to_gguf.py)."""
    return Type.F32 if dimensions < 2 else Type.F16
