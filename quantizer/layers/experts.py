"""Experts of a mixture (Qwen3-MoE) as linear layers of their own, named as checkpoints name them.

transformers keeps the experts of a layer as two tensors, `experts.gate_up_proj` [experts, 2 x inner, width] and
`experts.down_proj` [experts, width, inner]. Servers load a quantized model by expert, `experts.3.gate_proj.weight`, so
each has scales of its own. `separate_experts` gives a model that form: everything that looks for linear layers then finds
them. A folder may hold either form: `separate_tensor` says which part of a stacked tensor an expert's is.

Source: transformers, models/qwen3_moe/modeling_qwen3_moe.py, Qwen3MoeExperts; for scales, vLLM's
model_executor/layers/quantization/modelopt.py, ModelOptNvFp4FusedMoE: one input scale for all experts of a layer, the
largest, and one tensor scale for gate and up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn

GATE, UP, DOWN = "gate_proj", "up_proj", "down_proj"
_STACKED: Final = re.compile(r"(.*\.experts)\.(gate_up_proj|down_proj)")
_EXPERT: Final = re.compile(r"(.*\.experts)\.\d+\.(gate_proj|up_proj|down_proj)")


class Expert(nn.Module):
    """One expert: down(act(gate(x)) * up(x)), without biases."""

    def __init__(self, width: int, inner: int, act: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False, device="meta", dtype=dtype)
        self.up_proj = nn.Linear(width, inner, bias=False, device="meta", dtype=dtype)
        self.down_proj = nn.Linear(inner, width, bias=False, device="meta", dtype=dtype)
        self.act_fn = act

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] to the same."""
        out: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return out


class SeparateExperts(nn.ModuleList):
    """The experts of one layer, called as transformers calls its own."""

    def forward(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """hidden: [tokens, width]; chosen: int64 [tokens, k], the experts of each token; weights: [tokens, k]. Returns the
        weighted sum of what the chosen experts make of each token: [tokens, width]."""
        out = torch.zeros_like(hidden)
        for index, expert in enumerate(self):
            tokens, place = torch.where(chosen == index)
            if len(tokens):
                made = expert(hidden[tokens]) * weights[tokens, place, None]
                out.index_add_(0, tokens, made.to(out.dtype))
        return out


def separate_experts(model: nn.Module) -> None:
    """Replace stacked experts by separate ones, which have no numbers yet: their parameters are on the meta device."""
    for name, module in list(model.named_modules()):
        stacked = getattr(module, "gate_up_proj", None)
        if isinstance(stacked, nn.Parameter) and stacked.ndim == 3:
            count, double, width = stacked.shape
            act: Any = module.act_fn
            experts = (Expert(width, double // 2, act, stacked.dtype) for _ in range(count))
            model.set_submodule(name, SeparateExperts(experts))
    model.eval()


def separate_tensor(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, int, slice]]:
    """The tensors that a stacked one stands for: an expert's name, its index, and its rows within that. Nothing for any
    other tensor."""
    found = _STACKED.fullmatch(name)
    if found is None or len(shape) != 3:
        return
    experts, rows = shape[:2]
    half = rows // 2
    parts = {DOWN: slice(0, rows)} if found[2] == DOWN else {GATE: slice(0, half), UP: slice(half, rows)}
    for index in range(experts):
        for part, place in parts.items():
            yield f"{found[1]}.{index}.{part}.weight", index, place


def sibling_experts(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Layers whose inputs a server rounds by one scale: gate and up of all experts of a layer, and down of all."""
    groups: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        if found := _EXPERT.fullmatch(name):
            groups.setdefault((found[1], found[2] == DOWN), []).append(name)
    return [tuple(group) for group in groups.values()]
