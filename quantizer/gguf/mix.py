"""The type of each tensor in llama.cpp's quantization mixes: `llama_tensor_get_type` in src/llama-quant.cpp, and `use_more_bits`.

Vectors (norms) are always F32. Models in which one of `interval` blocks has attention and the others a DeltaNet (Qwen3.5) have a
fused attn_qkv with a type of its own; their attn_v tensors are counted among themselves, but compared with the number of all
blocks, and their convolution is never quantized.
"""

import re
from typing import Final, NamedTuple

from gguf import GGML_QUANT_SIZES, LlamaFileType
from gguf import GGMLQuantizationType as Type


class Mix(NamedTuple):
    """file: its number in the file. rest: the type of a matrix. output: of the output matrix, or of the embedding if it is also
    the output. some: of attn_v and ffn_down in the blocks that `use_more_bits` selects. more: of attn_v, attn_output and ffn_down
    in all blocks. fused: of a fused attn_qkv. None is `rest`."""

    file: LlamaFileType
    rest: Type
    output: Type | None = None
    some: Type | None = None
    more: Type | None = None
    fused: Type | None = None


MIXES: Final = {
    "f16": Mix(LlamaFileType.MOSTLY_F16, Type.F16),
    "q8_0": Mix(LlamaFileType.MOSTLY_Q8_0, Type.Q8_0),
    "q6_k": Mix(LlamaFileType.MOSTLY_Q6_K, Type.Q6_K),
    "q5_k_m": Mix(LlamaFileType.MOSTLY_Q5_K_M, Type.Q5_K, output=Type.Q6_K, some=Type.Q6_K, fused=Type.Q6_K),
    "q4_k_m": Mix(LlamaFileType.MOSTLY_Q4_K_M, Type.Q4_K, output=Type.Q6_K, some=Type.Q6_K, fused=Type.Q5_K),
    "q2_k": Mix(LlamaFileType.MOSTLY_Q2_K, Type.Q2_K, output=Type.Q6_K, more=Type.Q3_K),
}
"""q2_k: for fewer than four query heads per key head."""
_PART: Final = re.compile(r"blk\.(\d+)\.(attn_v|attn_output|ffn_down|ffn_down_exps)\.weight")


def use_more_bits(block: int, blocks: int) -> bool:
    """Whether llama.cpp gives more bits to a block; integer division as in C++."""
    eighth = blocks // 8
    return block < eighth or block >= 7 * blocks // 8 or (block - eighth) % 3 == 2


def choose(mix: Mix, name: str, dimensions: int, blocks: int, tied: bool, interval: int = 1) -> Type:
    """The type of a tensor. blocks: of the model. tied: the embedding is also the output. interval: one of so many blocks has
    attention."""
    if dimensions < 2 or (interval > 1 and name.endswith("ssm_conv1d.weight")):
        return Type.F32
    if name == "output.weight" or (tied and name == "token_embd.weight"):
        return mix.output or mix.rest
    if mix.fused and name.endswith("attn_qkv.weight"):
        return mix.fused
    if found := _PART.fullmatch(name):
        block, part = int(found[1]), found[2]
        block = block // interval if part == "attn_v" else block
        if mix.some and part != "attn_output" and use_more_bits(block, blocks):
            return mix.some
        return mix.more or mix.rest
    return mix.rest


_NARROW: Final = {
    Type.Q2_K: Type.IQ4_NL,
    Type.Q3_K: Type.IQ4_NL,
    Type.Q4_K: Type.Q5_0,
    Type.Q5_K: Type.Q5_1,
    Type.Q6_K: Type.Q8_0,
}


def fitting(kind: Type, columns: int) -> Type:
    """The replacement type if a row is not a whole number of blocks of a type, as in `tensor_type_fallback` of
    src/llama-quant.cpp; F16 if that does not fit either."""
    if kind in _NARROW and columns % GGML_QUANT_SIZES[kind][0]:
        kind = _NARROW[kind]
    return Type.F16 if columns % GGML_QUANT_SIZES[kind][0] else kind
