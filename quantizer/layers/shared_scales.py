"""One scale for layers that a server joins, set before a model is trained or measured.

A calibrated model has a scale for each layer. ModelOpt takes the largest of every group when it exports, so an untied
model is trained with other numbers than it will be served with; for Qwen3.5's `in_proj_qkv` and `in_proj_z` that holds
for calibrated block scales too. After `tie_scales` the model computes what its export will say.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from quantizer.layers.fused import groups


def tie_scales(model: nn.Module) -> list[tuple[str, ...]]:
    """Give the layers of each group the group's largest amax, for weights and inputs; returns the groups.

    model: calibrated by ModelOpt. Layers whose quantizers are off or not calibrated stay as they are.
    """
    layers = {name: layer for name, layer in model.named_modules() if _enabled(layer, "weight_quantizer")}
    found = groups(layers)
    for group in found:
        members = [layers[name] for name in group]
        weights = [member.weight_quantizer for member in members]
        _share(weights, "amax" if getattr(weights[0], "global_amax", None) is None else "global_amax")
        if all(_enabled(member, "input_quantizer") for member in members):
            _share([member.input_quantizer for member in members], "amax")
    return found


def _enabled(layer: Any, name: str) -> bool:
    return bool(getattr(getattr(layer, name, None), "is_enabled", False))


def _share(quantizers: list[Any], name: str) -> None:
    values = [getattr(quantizer, name) for quantizer in quantizers]
    if any(value is None or value.numel() != 1 for value in values):
        return
    largest = torch.stack([value.float().reshape(()) for value in values]).amax()
    for quantizer, value in zip(quantizers, values, strict=True):
        setattr(quantizer, name, largest.to(value.dtype).reshape(value.shape))
