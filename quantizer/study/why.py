"""Where the loss comes from: an NVFP4 model with some of its layers, or one operand of all, put back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.layers.fused import fused_groups
from quantizer.ptq.parity import ServedLinear
from quantizer.study import measure

Change = Callable[[dict[str, ServedLinear], nn.Module, "Sequence[str]"], Sequence[str]]
KINDS: Final[Mapping[str, str]] = {
    "qkv": r"\.[qkv]_proj$", "o": r"\.o_proj$", "gate, up": r"\.(gate|up)_proj$", "down": r"\.down_proj$",
}  # fmt: skip
E4M3: Final = 448.0


class Fp8Linear(nn.Module):
    """A layer in FP8: E4M3 weights with a scale for each row, inputs with one for each token."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = fp8(weight), bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(fp8(x), self.weight, self.bias)


def fp8(x: Tensor) -> Tensor:
    """The values in E4M3 under the best scale for each last dimension."""
    scale = (x.abs().amax(dim=-1, keepdim=True).float() / E4M3).clamp(min=1e-12)
    return ((x.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(x.dtype)


def apply(model: nn.Module, plain: nn.Module, change: str, reference: measure.Reference, pad: int) -> int:
    """Make a variant of a served model in place; how many layers were touched. change: "PART of WHICH"."""
    layers = {name: one for name, one in model.named_modules() if isinstance(one, ServedLinear)}
    what, _, which = change.partition(" of ")
    if which.startswith("worst"):
        share = float(which.removeprefix("worst "))
        names = worst(model, plain, layers, reference, pad, share)
    else:
        names = [
            name for name in layers if which == "all" or re.search(KINDS[which.removeprefix("not ")], name)
        ]
        if which.startswith("not "):
            names = [name for name in layers if name not in set(names)]
    for name in names:
        put_back(model, plain, name, what)
    return len(names)


def put_back(model: nn.Module, plain: nn.Module, name: str, what: str) -> None:
    """Give one layer its BF16 weight, its unrounded inputs, both, or FP8."""
    layer, source = model.get_submodule(name), plain.get_submodule(name)
    weight: Any = source.weight
    if what == "fp8":
        model.set_submodule(name, Fp8Linear(weight.detach(), source.bias))
        return
    if what in ("weights", "bf16"):
        layer.weight = weight.detach()
    if what in ("inputs", "bf16"):
        layer.input_scale = None


def worst(
    model: nn.Module,
    plain: nn.Module,
    layers: Mapping[str, ServedLinear],
    reference: measure.Reference,
    pad: int,
    share: float,
) -> list[str]:
    """The fused groups that alone bring the most divergence for their weights, up to a share of all weights."""
    groups = [*fused_groups(layers)]
    groups += [(name,) for name in layers if not any(name in group for group in groups)]
    sizes = {group: sum(layers[name].weight.numel() for name in group) for group in groups}
    few = sample(reference)
    found = {}
    for group in groups:
        kept = {name: plain.get_submodule(name) for name in group}
        for name in group:
            plain.set_submodule(name, layers[name])
        found[group] = divergence(plain, few, pad)
        for name, one in kept.items():
            plain.set_submodule(name, one)
    left, names = share * sum(sizes.values()), []
    for group in sorted(groups, key=lambda one: -found[one] / sizes[one]):
        if sizes[group] <= left:
            left -= sizes[group]
            names += group
    return names


def sample(reference: measure.Reference, each: int = 6) -> measure.Reference:
    """Every so many of a reference's texts."""
    lengths = [len(text) - start for text, start in zip(reference.texts, reference.starts, strict=True)]
    hidden, targets = reference.hidden.split(lengths), reference.targets.split(lengths)
    return measure.Reference(
        reference.texts[::each], reference.starts[::each], reference.kinds[::each],
        torch.cat(hidden[::each]), reference.head, torch.cat(targets[::each]),
    )  # fmt: skip


@torch.no_grad()
def divergence(model: nn.Module, reference: measure.Reference, pad: int) -> float:
    hidden = measure.states(model, reference.texts, reference.starts, pad)
    new, old = (F.log_softmax(F.linear(x, reference.head).float(), -1) for x in (hidden, reference.hidden))
    return float(F.kl_div(new, old, reduction="batchmean", log_target=True))


VARIANTS: Final[Mapping[str, str]] = {
    "inputs alone rounded": "weights of all",
    "weights alone rounded": "inputs of all",
    **{f"{kind} in BF16": f"bf16 of {kind}" for kind in KINDS},
    **{f"only {kind} in NVFP4": f"bf16 of not {kind}" for kind in KINDS},
    **{f"{kind} with plain inputs": f"inputs of {kind}" for kind in KINDS},
    "worst tenth in BF16": "bf16 of worst 0.1",
    "worst tenth in FP8": "fp8 of worst 0.1",
    "worst tenth with plain inputs": "inputs of worst 0.1",
    "worst fifth in FP8": "fp8 of worst 0.2",
    "all in FP8": "fp8 of all",
}
"""A name, and what is put back of what."""
