"""The type of each tensor in llama.cpp's quantization mixes: `llama_tensor_get_type` in src/llama-quant.cpp, and `use_more_bits`.

For a dense model, Q4_K_M (Q5_K_M: the same with Q5_K instead of Q4_K) has

* the output matrix, or the embedding if it is also the output: Q6_K
* attn_v and ffn_down of the blocks that `use_more_bits` selects (the first eighth, the last eighth, every third between): Q6_K
* every other matrix, including a separate embedding: Q4_K
* vectors (norms): always F32

Q6_K and Q8_0 give every matrix the one type.
"""

import re
from collections.abc import Callable

from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type

Mix = Callable[[str, int, int, bool], Type]
"""From the name, the number of dimensions, the number of blocks, and whether the embedding is also the output, to
the type."""

_BLOCK = re.compile(r"blk\.(\d+)\.(attn_v|ffn_down|ffn_down_exps)\.weight")


def use_more_bits(block: int, blocks: int) -> bool:
    """Whether llama.cpp gives more bits to a block; integer division as in C++."""
    eighth = blocks // 8
    return block < eighth or block >= 7 * blocks // 8 or (block - eighth) % 3 == 2


def _is_output(name: str, tied: bool) -> bool:
    return name == "output.weight" or (tied and name == "token_embd.weight")


def _medium(name: str, dimensions: int, blocks: int, tied: bool, rest: Type) -> Type:
    """The type of a tensor in a mix of Q6_K, for what matters most, and a smaller type."""
    if dimensions < 2:
        return Type.F32
    found = _BLOCK.fullmatch(name)
    more = found is not None and use_more_bits(int(found[1]), blocks)
    return Type.Q6_K if more or _is_output(name, tied) else rest


def q4_k_m(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """The type of a tensor in Q4_K_M. tied: the embedding is also the output matrix."""
    return _medium(name, dimensions, blocks, tied, Type.Q4_K)


def q5_k_m(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    return _medium(name, dimensions, blocks, tied, Type.Q5_K)


def q6_k(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """The type of a tensor in Q6_K: every matrix."""
    return Type.F32 if dimensions < 2 else Type.Q6_K


def q8_0(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """The type of a tensor in Q8_0: every matrix, the output too."""
    return Type.F32 if dimensions < 2 else Type.Q8_0


_Q3_IN_Q2 = re.compile(r"blk\.\d+\.(attn_v|attn_output|ffn_down|ffn_down_exps)\.weight")


def q2_k(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """The type of a tensor in Q2_K, for fewer than four query heads per key head."""
    if dimensions < 2:
        return Type.F32
    if _is_output(name, tied):
        return Type.Q6_K
    return Type.Q3_K if _Q3_IN_Q2.fullmatch(name) else Type.Q2_K


def tq2_0(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """Ternary matrices with the output in Q6_K: useless for models that were not trained for it."""
    if dimensions < 2:
        return Type.F32
    return Type.Q6_K if _is_output(name, tied) else Type.TQ2_0


_RANKED = re.compile(r"blk\.(\d+)\.attn_v\.weight")
_FUSED = {q4_k_m: Type.Q5_K, q5_k_m: Type.Q6_K}
"""By mix, the type of a fused attn_qkv."""


def hybrid(mix: Mix, interval: int) -> Mix:
    """A mix for a model in which one of `interval` blocks has attention and the others a DeltaNet, such as Qwen3.5.

    A fused attn_qkv is Q5_K in Q4_K_M and Q6_K in Q5_K_M; attn_v tensors are counted among themselves, but compared with the number
    of all blocks. The convolution is never quantized.
    """

    def choose(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
        if name.endswith("ssm_conv1d.weight"):
            return Type.F32
        if mix in _FUSED and name.endswith("attn_qkv.weight"):
            return _FUSED[mix]
        if found := _RANKED.fullmatch(name):
            name = f"blk.{int(found[1]) // interval}.attn_v.weight"
        return mix(name, dimensions, blocks, tied)

    return choose


_NARROW = {
    Type.Q2_K: Type.IQ4_NL,
    Type.Q3_K: Type.IQ4_NL,
    Type.Q4_K: Type.Q5_0,
    Type.Q5_K: Type.Q5_1,
    Type.Q6_K: Type.Q8_0,
    Type.TQ2_0: Type.Q4_0,
}


def fitting(kind: Type, columns: int) -> Type:
    """The replacement type if a row is not a whole number of blocks of a type, as in `tensor_type_fallback` of
    src/llama-quant.cpp; F16 if that does not fit either."""
    if kind in _NARROW and columns % GGML_QUANT_SIZES[kind][0]:
        kind = _NARROW[kind]
    return Type.F16 if columns % GGML_QUANT_SIZES[kind][0] else kind


def f16(name: str, dimensions: int, blocks: int, tied: bool) -> Type:
    """The type of a tensor in an F16 file: matrices F16, vectors F32 (as in convert_hf_to_gguf.py)."""
    return Type.F32 if dimensions < 2 else Type.F16
