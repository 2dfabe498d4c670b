"""Parity check: the exported folder computes what was measured or trained.

`served_model` builds a model from an exported folder as a server does, and shares nothing with the model that was
exported: weights are dequantized by the verifier's reader, inputs are rounded under the stored `input_scale`. On
the same tokens its logits must equal those of the fake-quantized model up to BF16 rounding; on the same device they
are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.core.errors import SourceError
from quantizer.nvfp4 import blocks, fake
from quantizer.verify.check import load_layer, unwrapped_name
from quantizer.verify.folder import Folder, open_folder
from quantizer.verify.layout import readable_layers

BF16_STEP = 2.0**-8  # half the distance of neighbouring BF16 numbers, relative to their size


@dataclass(frozen=True, slots=True)
class Parity:
    """The result of a comparison.

    tokens: number compared. equal: those with logits equal to the bit. largest: the largest difference, in units of
    BF16 rounding at the largest logit. same_choice: tokens with the same most likely next token.
    """

    tokens: int
    equal: int
    largest: float
    same_choice: int

    @property
    def holds(self) -> bool:
        """Whether all differences are within BF16 rounding."""
        return self.tokens > 0 and self.largest <= 1.0


class ServedLinear(nn.Module):
    """A quantized layer as a server computes it. weight: BF16 [out, in], dequantized. input_scale: float32 []."""

    weight: Tensor
    input_scale: Tensor

    def __init__(self, weight: Tensor, input_scale: Tensor, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("input_scale", input_scale)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out], both in the weight's type."""
        scale = blocks.block_scale(blocks.block_amax(x), self.input_scale)
        return F.linear(fake.fake_static(x, scale, self.input_scale), self.weight, self.bias)


def served_model(path: Path, device: str = "cpu") -> nn.Module:
    """The model of an exported NVFP4 folder, in BF16 and evaluation mode. Raises SourceError if it is incomplete."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = open_folder(path)
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    config = getattr(config, "text_config", None) or config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    packed = readable_layers(folder)
    plain = {
        unwrapped_name(n): n
        for n in folder.tensors
        if n.rpartition(".")[0] not in packed or n.endswith(".bias")
    }
    state = {short: folder.load(name) for short, name in plain.items() if short in model.state_dict()}
    missing, _ = model.load_state_dict(state, strict=False)
    model.tie_weights()
    for name in packed:
        _serve(model, folder, name)
    _check_whole(path, model, set(missing), {f"{unwrapped_name(name)}.weight" for name in packed})
    return model.to(device).eval()


@torch.no_grad()
def compare(model: nn.Module, served: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> Parity:
    """Compare the logits of two models on the same tokens.

    batches: (ids int64 [rows, tokens], attention bool [rows, tokens]); padding is ignored.
    """
    tokens = equal = same = 0
    largest = 0.0
    for ids, attention in batches:
        device = next(model.parameters()).device
        ids, attention = ids.to(device), attention.to(device)
        ours, theirs = (m(input_ids=ids, attention_mask=attention).logits[attention] for m in (model, served))
        off = (ours.float() - theirs.float()).abs()
        unit = (BF16_STEP * ours.float().abs().amax()).clamp(min=torch.finfo(torch.float32).tiny)
        tokens += len(ours)
        equal += int((off.amax(dim=-1) == 0).sum())
        same += int((ours.argmax(dim=-1) == theirs.argmax(dim=-1)).sum())
        largest = max(largest, float(off.amax() / unit))
    return Parity(tokens, equal, largest, same)


def _serve(model: nn.Module, folder: Folder, name: str) -> None:
    tensor = load_layer(folder, name)
    weight = blocks.dequantize(tensor, torch.bfloat16)
    before = model.get_submodule(unwrapped_name(name))
    scale = folder.load(f"{name}.input_scale").reshape(())
    model.set_submodule(unwrapped_name(name), ServedLinear(weight, scale, getattr(before, "bias", None)))


def _check_whole(path: Path, model: nn.Module, missing: set[str], packed: set[str]) -> None:
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    gone = sorted(missing - packed - tied)
    if gone:
        raise SourceError(f"{path}: lacks {len(gone)} of the model's weights, first {gone[0]}")
