"""Qwen3's decoder written out over transformers' modules, for many small forward passes.

The results equal those of transformers' forward (a test compares them). It avoids what is slow at this size: no
masks are made, nothing waits for the device, so that a CUDA graph can record it, and the inputs of layers that read
the same tensor are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.layers.linear import NVFP4Linear
from quantizer.nvfp4.fake import fake_dynamic

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""From block number, q [rows, heads, tokens, d], k and v [rows, kv heads, tokens, d] to [rows, heads, tokens, d]."""


def hidden_states(
    model: Any, ids: Tensor, places: Tensor | None = None, attend: Attend | None = None
) -> Tensor:
    """The decoder's last hidden states: int64 [rows, tokens] to float [rows, tokens, width].

    places: int64 [rows or 1, tokens]; 0, 1, 2 … by default. attend: causal over `ids` by default.
    """
    decoder, attend = model.model, attend or causal
    if places is None:
        places = torch.arange(ids.shape[1], device=ids.device)[None]
    x = decoder.embed_tokens(ids)
    turns = [turn.unsqueeze(1) for turn in decoder.rotary_emb(x, places)]
    for number, block in enumerate(decoder.layers):
        x = x + _attention(block.self_attn, block.input_layernorm(x), turns, number, attend)
        mlp = block.mlp
        gate, up = _together(block.post_attention_layernorm(x), mlp.gate_proj, mlp.up_proj)
        x = x + mlp.down_proj(mlp.act_fn(gate) * up)
    return decoder.norm(x)


def causal(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention: every token sees itself and those before it."""
    more = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(more, dim=1), v.repeat_interleave(more, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attention(part: Any, x: Tensor, turns: list[Tensor], number: int, attend: Attend) -> Tensor:
    shape = (*x.shape[:2], -1, part.head_dim)
    q, k, v = (y.view(shape) for y in _together(x, part.q_proj, part.k_proj, part.v_proj))
    q, k = (_turned(y.transpose(1, 2), turns) for y in (part.q_norm(q), part.k_norm(k)))
    seen = attend(number, q, k, v.transpose(1, 2))
    return part.o_proj(seen.transpose(1, 2).reshape(*x.shape[:2], -1))


def _turned(x: Tensor, turns: list[Tensor]) -> Tensor:
    """Apply the rotary embedding."""
    first, second = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat((-second, first), dim=-1) * turns[1]


def _together(x: Tensor, *layers: nn.Module) -> list[Tensor]:
    """The outputs of layers that read the same tensor. Their input scales are shared, so it is rounded once."""
    first = layers[0]
    if not (isinstance(first, NVFP4Linear) and first.active):
        return [layer(x) for layer in layers]
    rounded = fake_dynamic(x, first.input_amax)
    return [F.linear(rounded, layer.fake_weight().to(x.dtype)) for layer in layers]  # type: ignore[operator]
