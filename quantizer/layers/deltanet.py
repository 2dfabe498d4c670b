"""Qwen3.5's DeltaNet layers on the chunked rule of `quantizer.layers.delta_rule`.

transformers' own recurrence is a loop whose backward pass takes ten times as long as all matrices of the layer. `use_chunks` gives the layers of one model another `forward`, and `use_own` takes it away again. A pass with a
cache, or over packed rows, is the layer's own. The causal convolution is a sum of shifted rows here: depthwise convolutions of
cuDNN and of torch are slow in the backward pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.layers.delta_rule import chunk_gated_delta_rule

_PARTS: Final = (
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_b",
    "in_proj_a",
    "conv1d",
    "A_log",
    "dt_bias",
    "norm",
    "out_proj",
)
_CHANGED: Final = ("forward", "front", "back", "rule")


def deltanets(model: nn.Module) -> list[nn.Module]:
    """The Gated DeltaNet layers of a model, as Qwen3.5 builds them."""
    return [layer for layer in model.modules() if all(hasattr(layer, part) for part in _PARTS)]


def use_chunks(model: nn.Module, *, compiled: bool = False) -> None:
    """Compute the DeltaNet layers of this model by chunks from now on; call it after checkpointing is switched on."""
    checkpointed = {
        id(layer)
        for block in model.modules()
        if getattr(block, "gradient_checkpointing", False)
        for layer in block.children()
    }
    for layer in deltanets(model):
        chosen = partial(chunk_gated_delta_rule, keep=id(layer) in checkpointed, compiled=compiled)
        methods: dict[str, Any] = {"forward": _forward, "front": _front, "back": _back}
        vars(layer).update({name: MethodType(method, layer) for name, method in methods.items()}, rule=chosen)


def use_own(model: nn.Module) -> None:
    """Give the layers their own forward again."""
    for layer in deltanets(model):
        for name in _CHANGED:
            vars(layer).pop(name, None)


def uses_chunks(layer: nn.Module) -> bool:
    return "rule" in vars(layer)


def compile_around(layer: nn.Module, options: dict[str, Any]) -> None:
    """Compile what is before and after the recurrence of a layer that `use_chunks` has changed. options: Inductor's."""
    for name in ("front", "back"):
        vars(layer)[name] = torch.compile(vars(layer)[name], options=options)


@contextmanager
def chunked(model: nn.Module) -> Iterator[None]:
    """A `with` block in which a model on a GPU computes its DeltaNet layers by chunks, if it does not do so anyway."""
    first = next(iter(deltanets(model)), None)
    if first is None or uses_chunks(first) or next(first.parameters()).device.type == "cpu":
        yield
        return
    use_chunks(model)
    try:
        yield
    finally:
        use_own(model)


def _forward(
    self: Any,
    hidden_states: Tensor,
    cache_params: Any = None,
    attention_mask: Tensor | None = None,
    **more: Any,
) -> Tensor:
    """As the layer's own: float [rows, tokens, width] to the same. attention_mask: [rows, tokens], 0 for padding."""
    if cache_params is not None or more.get("cu_seq_lens_q") is not None or self.activation != "silu":
        own: Tensor = type(self).forward(
            self, hidden_states, cache_params=cache_params, attention_mask=attention_mask, **more
        )
        return own
    query, key, value, g, beta, gate = self.front(hidden_states, attention_mask)
    result: Tensor = self.back(self.rule(query, key, value, g, beta), gate)
    return result


def _front(self: Any, hidden: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
    """What comes before the recurrence: its query, key, value, g and beta, and the gate of what comes after it."""
    if mask is not None:
        hidden = (hidden * mask[:, :, None]).to(hidden.dtype)
    mixed = F.silu(causal_convolution(self.in_proj_qkv(hidden), self.conv1d.weight, self.conv1d.bias))
    parts = mixed.split([self.key_dim, self.key_dim, self.value_dim], dim=-1)
    query, key = (part.unflatten(-1, (-1, self.head_k_dim)) for part in parts[:2])
    value = parts[2].unflatten(-1, (-1, self.head_v_dim))
    beta = self.in_proj_b(hidden).sigmoid()
    # In float32, as the layer's own: exp(A_log) has no room in fewer bits.
    g = -self.A_log.float().exp() * F.softplus(self.in_proj_a(hidden).float() + self.dt_bias)
    gate = self.in_proj_z(hidden).unflatten(-1, (-1, self.head_v_dim))
    return query, key, value, g, beta, gate


def _back(self: Any, out: Tensor, gate: Tensor) -> Tensor:
    """What comes after it: both [rows, tokens, value heads, dv] to [rows, tokens, width]."""
    normed = self.norm(out.reshape(-1, self.head_v_dim), gate.reshape(-1, self.head_v_dim))
    result: Tensor = self.out_proj(normed.reshape(*out.shape[:2], -1))
    return result


def causal_convolution(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Every channel by itself over the last tokens: float [rows, tokens, channels] with weights [channels, 1, taps] to
    [rows, tokens, channels] in x's type. Sums are in float32, as a GPU's own convolution of BF16 has them."""
    taps, tokens, wide = weight.shape[-1], x.shape[1], torch.promote_types(x.dtype, torch.float32)
    padded = F.pad(x, (0, 0, taps - 1, 0))
    total = sum(padded[:, tap : tap + tokens].to(wide) * weight[:, 0, tap].to(wide) for tap in range(taps))
    assert isinstance(total, Tensor)
    if bias is not None:
        total = total + bias.to(wide)
    return total.to(x.dtype)
