"""Parity check: the exported folder computes what was measured or trained.

`served_model` builds a model from a folder as a server does, by the verifier's reader. On the same tokens its logits must equal
those of the fake-quantized model up to BF16 rounding; on the same device to the bit. It has one decoder layer at a time, and
logits are compared in slices of the vocabulary.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.checkpoint.source import fill, finish, from_config
from quantizer.checkpoint.streamed import head_parts, stream
from quantizer.core.batch import Batch
from quantizer.core.decoder import decoder_layers, head, layers_name
from quantizer.core.errors import SourceError
from quantizer.core.expert_names import unwrapped_name
from quantizer.core.layerwise import Layerwise
from quantizer.nvfp4 import blocks, fake
from quantizer.verify.check import load_layer
from quantizer.verify.folder import Folder, open_folder
from quantizer.verify.layout import readable_layers, refuse_fp8

BF16_STEP = 2.0**-8  # half the distance of neighbouring BF16 numbers, relative to their size
TOKENS: Final = 2048
"""Tokens whose logits are compared at a time."""


@dataclass(frozen=True, slots=True)
class Parity:
    """The result of a comparison: tokens, those with `equal` logits, and the `largest` difference in units of BF16 rounding at the
    largest logit; NaN counts as infinitely far."""

    tokens: int
    equal: int
    largest: float

    @property
    def holds(self) -> bool:
        """Whether all differences are within BF16 rounding."""
        return self.tokens > 0 and self.largest <= 1.0


class ServedLinear(nn.Module):
    """A layer as a server computes it. weight: BF16 [out, in], dequantized. input_scale: float32 [], or None if inputs
    are not rounded."""

    weight: Tensor
    input_scale: Tensor | None

    def __init__(self, weight: Tensor, input_scale: Tensor | None, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("input_scale", input_scale)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out], both in the weight's type."""
        if self.input_scale is None:
            return F.linear(x, self.weight, self.bias)
        scale = blocks.block_scale(blocks.block_amax(x), self.input_scale)
        return F.linear(fake.fake_static(x, scale, self.input_scale), self.weight, self.bias)


def served_linear(
    folder: Folder, name: str, device: str, bias: nn.Parameter | None, weight_only: bool = False
) -> ServedLinear:
    """A layer of a folder. weight_only: inputs are not rounded. Raises SourceError if an input scale is missing."""
    weight = blocks.dequantize(load_layer(folder, name, device), torch.bfloat16)
    if weight_only:
        return ServedLinear(weight, None, bias)
    if f"{name}.input_scale" not in folder.tensors:
        raise SourceError(f"{folder.path}: {name} has no input scale, so it can only be served weight-only")
    return ServedLinear(weight, folder.copy(f"{name}.input_scale", device).reshape(()), bias)


class ServedLayers:
    """The decoder layers of an exported folder, of which the last that was asked for is in memory."""

    def __init__(
        self,
        folder: Folder,
        name: str,
        empty: Sequence[nn.Module],
        device: str,
        weight_only: bool = False,
    ) -> None:
        self.folder, self.name, self.empty, self.device = folder, name, empty, device
        self.weight_only = weight_only
        self.packed = {unwrapped_name(name): name for name in readable_layers(folder)}
        gone = {f"{name}.weight" for name in self.packed.values()}
        self.names = {unwrapped_name(name): name for name in folder.tensors if name not in gone}
        self.index, self.layer = -1, nn.Module()

    def get(self, index: int) -> nn.Module:
        if index != self.index:
            self.index, self.layer = -1, nn.Module()  # let the other one go first
            self.layer = self.put(copy.deepcopy(self.empty[index]), f"{self.name}.{index}.")
            self.index = index
        return self.layer

    def put(self, module: nn.Module, prefix: str = "") -> nn.Module:
        """Read a part of the model, or all of it. prefix: the part's name, with a dot."""
        for short, name in self.packed.items():
            if short.startswith(prefix):
                place = short.removeprefix(prefix)
                bias = getattr(module.get_submodule(place), "bias", None)
                served = served_linear(self.folder, name, self.device, bias, self.weight_only)
                module.set_submodule(place, served)
        fill(module, self.folder, self.names, self.device, prefix)
        return module


class ServedLayer(nn.Module):
    """A decoder layer that is read when it is run."""

    def __init__(self, layers: ServedLayers, index: int) -> None:
        super().__init__()
        self.layers, self.index = layers, index

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.layers.get(self.index)(*args, **kwargs)


def served_model(path: Path, device: str = "cpu", weight_only: bool = False) -> nn.Module:
    """The model of an exported NVFP4 folder, in BF16; its matrices are read when they are needed. Raises SourceError.

    `weight_only`: inputs are not rounded, as in kernels such as Marlin's on GPUs without FP4.
    """
    model, layers = open_served(path, device, weight_only)
    served = nn.ModuleList(ServedLayer(layers, index) for index in range(len(layers.empty)))
    model.set_submodule(layers.name, served)
    return stream(model, layers.folder, layers.names, device)


def reference_model(path: Path, device: str = "cpu", *, weight_only: bool = False) -> nn.Module:
    """The whole model of an NVFP4 folder on a device, in evaluation mode. Raises SourceError if a weight or an input scale is missing.

    Hardware multiplies codes and scales the sums in float32; here the scaled values are rounded to BF16 and multiplied.
    """
    model, layers = open_served(path, device, weight_only)
    if not layers.packed:
        raise SourceError(f"{path}: no layer of it is in NVFP4")
    return finish(layers.put(model), device)


def open_served(path: Path, device: str, weight_only: bool) -> tuple[nn.Module, ServedLayers]:
    """The model of an NVFP4 folder without numbers, and what reads its decoder layers. Raises SourceError if a weight is missing."""
    from transformers import AutoConfig

    folder = open_folder(path)
    refuse_fp8(folder)
    model = from_config(AutoConfig.from_pretrained(path, local_files_only=True), torch.bfloat16)
    layers = ServedLayers(folder, layers_name(model), decoder_layers(model), device, weight_only)
    if foreign := sorted(layers.packed.keys() - {name for name, _ in model.named_modules()}):
        raise SourceError(
            f"{path}: {foreign[0]} is no layer of transformers' model (stacked experts?); it is not served"
        )
    model.tie_weights()  # type: ignore[operator]  # transformers'
    held = layers.names.keys() | {f"{name}.weight" for name in layers.packed}
    if gone := sorted({name for name, _ in model.named_parameters()} - held):
        raise SourceError(f"{path}: lacks {len(gone)} of the model's weights, first {gone[0]}")
    return model, layers


def outputs(model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
    """The last hidden states of each batch: [rows, tokens, width]. batches: on the model's device."""
    run = Layerwise(model, batches)
    for index in range(len(decoder_layers(model))):
        for _ in run.advance(index):
            pass
    return [run.finish(number) for number in range(len(batches))]


def compare(
    hidden: Sequence[Tensor], matrix: nn.Module, served: nn.Module, batches: Sequence[Batch]
) -> Parity:
    """Compare the logits with a served model's; padding is ignored. hidden, matrix: what the other model has come to on these
    batches, and its output matrix."""
    tokens = equal = 0
    largest = 0.0
    for ours, theirs, batch in zip(hidden, outputs(served, batches), batches, strict=True):
        off, size = _distances(ours[batch.attention], theirs[batch.attention], matrix, head(served))
        unit = (BF16_STEP * size).clamp(min=torch.finfo(torch.float32).tiny)
        tokens += len(off)
        equal += int((off == 0).sum())
        largest = max(largest, float((off.amax() / unit).nan_to_num(nan=torch.inf)))
    return Parity(tokens, equal, largest)


@torch.no_grad()
def _distances(ours: Tensor, theirs: Tensor, own: nn.Module, other: nn.Module) -> tuple[Tensor, Tensor]:
    """The largest difference of two models' logits at each token, float32 [tokens], and our largest logit, float32 []."""
    off, size = torch.zeros(len(ours), device=ours.device), torch.zeros((), device=ours.device)
    for rows in zip(head_parts(own), head_parts(other), strict=True):
        for begin in range(0, len(ours), TOKENS):
            some = slice(begin, begin + TOKENS)
            one, another = (F.linear(x[some], w).float() for x, w in zip((ours, theirs), rows, strict=True))
            size = torch.maximum(size, one.abs().amax())
            off[some] = torch.maximum(off[some], (one - another).abs().amax(dim=-1))
    return off, size
