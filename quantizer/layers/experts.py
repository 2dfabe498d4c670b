"""Splits the experts of a mixture, stacked as Qwen3-MoE's, into separate linear layers, named as in checkpoints.

Code that looks for linear layers then finds them, and each has its own scale, as servers load it.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Expert(nn.Module):
    """One expert: down(act(gate(x)) * up(x)), without biases."""

    def __init__(self, width: int, inner: int, act: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False, device="meta", dtype=dtype)
        self.up_proj = nn.Linear(width, inner, bias=False, device="meta", dtype=dtype)
        self.down_proj = nn.Linear(inner, width, bias=False, device="meta", dtype=dtype)
        self.act_fn = act

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] to [tokens, width]."""
        out: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return out


class SeparateExperts(nn.ModuleList):
    """The experts of one layer, called as transformers calls its own."""

    def forward(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """hidden: [tokens, width]; chosen: int64 [tokens, k], the experts of each token; weights: [tokens, k]. Returns the
        weighted sum of the chosen experts' outputs: [tokens, width]."""
        out = torch.zeros_like(hidden)
        for index, expert in enumerate(self):
            tokens, place = torch.where(chosen == index)
            if len(tokens):
                made = expert(hidden[tokens]) * weights[tokens, place, None]
                out.index_add_(0, tokens, made.to(out.dtype))
        return out


def separate_experts(model: nn.Module) -> None:
    """Replace stacked experts by separate ones without weights: their parameters are on the meta device."""
    for name, module in list(model.named_modules()):
        stacked = getattr(module, "gate_up_proj", None)
        if not isinstance(stacked, nn.Parameter) or stacked.ndim != 3:
            continue
        count, double, width = stacked.shape
        # Others, such as GPT-OSS's with biases and transposed, stay as they are.
        if module.get_parameter("down_proj").shape == (count, width, double // 2) and hasattr(
            module, "act_fn"
        ):
            act: Any = module.act_fn
            experts = (Expert(width, double // 2, act, stacked.dtype) for _ in range(count))
            model.set_submodule(name, SeparateExperts(experts))
    model.eval()
