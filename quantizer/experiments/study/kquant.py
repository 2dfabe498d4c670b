"""The values of a Q4_K_M file in torch: weights rounded as by llama.cpp's quantizer, without writing a file.

Formats and searches: ggml-quants.c, quantize_row_{q4_K,q6_K,q5_0,q8_0}_ref, make_qkx2_quants and make_qx_quants.
Sums are computed in another order, so another one of two nearly equal candidates may be chosen; a test compares
both. Rows that are not multiples of 256 get llama.cpp's fallback types (`mix.fitting`): Q5_0 and Q8_0.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from gguf import GGMLQuantizationType as Type
from torch import Tensor, nn

from quantizer.gguf import mix

NAMES: Final = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
"""From a layer's name in a block to llama.cpp's name."""


@torch.no_grad()
def round_model(model: Any) -> dict[str, int]:
    """Round the matrices of a Qwen3 in place to its Q4_K_M. Returns the number of matrices by type. Tied embeddings
    only."""
    blocks = len(model.model.layers)
    counts: dict[str, int] = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, nn.Linear | nn.Embedding) or name == "lm_head":
            continue
        kind = mix.q4_k_m(_name(name), 2, blocks, tied=True)
        kind = mix.fitting(kind, layer.weight.shape[1])
        layer.weight.copy_(rounded(layer.weight.float(), kind))
        counts[kind.name] = counts.get(kind.name, 0) + 1
    return counts


def rounded(weight: Tensor, kind: Type) -> Tensor:
    """float32 [rows, columns] rounded to a type."""
    return _ROUND[kind](weight.reshape(-1, 32 if kind in (Type.Q5_0, Type.Q8_0) else 256)).reshape(
        weight.shape
    )


def _name(module: str) -> str:
    if module == "model.embed_tokens":
        return "token_embd.weight"
    _, _, number, part = module.split(".", 3)
    return f"blk.{number}.{NAMES[part]}.weight"


def _half(x: Tensor) -> Tensor:
    return x.half().float()


def _inverse(x: Tensor) -> Tensor:
    return torch.where(x == 0, 0, 1 / x)


def _largest(x: Tensor) -> Tensor:
    """The number with the largest magnitude in each row, with its sign: [..., n] to [..., 1]."""
    return x.gather(-1, x.abs().argmax(-1, keepdim=True))


def _q8_0(x: Tensor) -> Tensor:
    step = x.abs().amax(-1, keepdim=True) / 127
    return (x * _inverse(step)).round() * _half(step)


def _q5_0(x: Tensor) -> Tensor:
    step = _largest(x) / -16
    return ((x * _inverse(step) + 16.5).floor().clamp(0, 31) - 16) * _half(step)


def _q6_k(x: Tensor) -> Tensor:
    parts = x.reshape(-1, 16, 16)
    scales = _symmetric(parts, 32)
    top = _largest(scales)
    inverse = -128 * _inverse(top)
    step = _half(_inverse(inverse)) * (inverse * scales).round().clamp(max=127)
    step = step.unsqueeze(-1)
    return ((parts * _inverse(step)).round().clamp(-32, 31) * step).reshape(x.shape)


def _symmetric(x: Tensor, most: int) -> Tensor:
    """make_qx_quants: the scale with the least error for each row, weighted by x squared; [..., n] to [...]."""
    top, weight = _largest(x), x * x
    best = least = None
    for shift in (0, *(i for i in range(-9, 10) if i)):
        codes = (x * -(most + 0.1 * shift) * _inverse(top)).round().clamp(-most, most - 1)
        cross, norm = (weight * x * codes).sum(-1), (weight * codes * codes).sum(-1)
        gain = torch.where(norm > 0, cross * cross / norm, 0)
        scale = torch.where(norm > 0, cross / norm, 0)
        if best is None or least is None:
            best, least = scale, gain
        else:
            better = gain > least
            best, least = torch.where(better, scale, best), torch.where(better, gain, least)
    assert best is not None
    return best


def _q4_k(x: Tensor) -> Tensor:
    parts = x.reshape(-1, 8, 32)
    scale, low = _affine(parts, 15)
    top_scale, top_low = scale.amax(-1, keepdim=True), low.amax(-1, keepdim=True)
    step = _half(top_scale / 63) * (63 * _inverse(top_scale) * scale).round().clamp(max=63)
    offset = _half(top_low / 63) * (63 * _inverse(top_low) * low).round().clamp(max=63)
    step, offset = step.unsqueeze(-1), offset.unsqueeze(-1)
    codes = ((parts + offset) * _inverse(step)).round().clamp(0, 15)
    return (codes * step - offset).reshape(x.shape)


def _affine(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """make_qkx2_quants with rmin -1, rdelta 0.1 and 20 steps: scale and -minimum of each row: [..., n] to [...]."""
    weight = x.square().mean(-1, keepdim=True).sqrt() + x.abs()
    total, sum_x = weight.sum(-1, keepdim=True), (weight * x).sum(-1, keepdim=True)
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True)
    best = (high - low) / most
    codes = ((x - low) * _inverse(best)).round().clamp(0, most)
    least = (weight * (best * codes + low - x).square()).sum(-1, keepdim=True)
    for number in range(21):
        # `low` is the best minimum so far; each result moves the start of the next step.
        codes = ((x - low) * (0.1 * number - 1 + most) * _inverse(high - low)).round().clamp(0, most)
        sum_l = (weight * codes).sum(-1, keepdim=True)
        sum_l2 = (weight * codes * codes).sum(-1, keepdim=True)
        sum_xl = (weight * codes * x).sum(-1, keepdim=True)
        scope = total * sum_l2 - sum_l * sum_l
        scale = (total * sum_xl - sum_x * sum_l) * _inverse(scope)
        minimum = (sum_l2 * sum_x - sum_l * sum_xl) * _inverse(scope)
        above = minimum > 0
        scale = torch.where(above, sum_xl * _inverse(sum_l2), scale)
        minimum = torch.where(above, 0, minimum)
        error = (weight * (scale * codes + minimum - x).square()).sum(-1, keepdim=True)
        better = (scope > 0) & (error < least)
        best, low = torch.where(better, scale, best), torch.where(better, minimum, low)
        least = torch.where(better, error, least)
    return best.squeeze(-1), -low.squeeze(-1)


_ROUND: Final = {Type.Q4_K: _q4_k, Type.Q6_K: _q6_k, Type.Q5_0: _q5_0, Type.Q8_0: _q8_0}
