"""What rounding to NVFP4 will leave of a fine-tune, from the weights before and after it alone.

Each layer is rounded as by the recipe `default`, in slices of rows. What that costs in behaviour no weight tells (docs/study).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from quantizer.core.errors import SourceError
from quantizer.layers.fused import fused_groups
from quantizer.layers.selection import ALWAYS_KEPT
from quantizer.nvfp4 import blocks
from quantizer.verify.folder import Folder, open_intact_folder, pinned
from quantizer.verify.report import FineTuneDelta
from quantizer.verify.values import fine_tune_delta

FLOATS: Final = frozenset(("BF16", "F16", "F32"))
ROWS_BYTES: Final = 32 * 2**20
"""Of the weights in float32 that are rounded at a time; on a GPU GPU_PARTS times as much."""
GPU_PARTS: Final = 8
_DECODER: Final = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.\d+\.")


@dataclass(frozen=True, slots=True)
class LayerRisk:
    """What is left of a fine-tune in a layer. steps: the sum of squares of the blocks' steps, one for each weight."""

    name: str
    weights: int
    steps: float
    delta: FineTuneDelta

    @property
    def delta_to_step(self) -> float:
        """The change over the blocks' step, both as root mean squares."""
        return math.sqrt(self.delta.wanted / self.steps) if self.steps else 0.0

    def as_json(self) -> dict[str, Any]:
        """The layer's figures. norm: the length of the change after rounding over that before."""
        delta = self.delta
        return {
            "name": self.name,
            "weights": self.weights,
            "moved": delta.moved,
            "delta_to_step": self.delta_to_step,
            "sign_kept": delta.sign_kept,
            "cosine": delta.cosine,
            "norm": math.sqrt(delta.got / delta.wanted) if delta.wanted else 0.0,
        }


def whole(layers: Iterable[LayerRisk]) -> LayerRisk:
    """All layers as one."""
    found = list(layers)
    delta = sum((layer.delta for layer in found), FineTuneDelta())
    return LayerRisk(
        "all layers", sum(layer.weights for layer in found), sum(layer.steps for layer in found), delta
    )


def assess(
    base: Path,
    source: Path,
    track: Callable[[list[str]], Iterable[str]] = list,
    device: str | torch.device = "cpu",
) -> tuple[LayerRisk, ...]:
    """Every layer that the recipe `default` quantizes, in the order of the fine-tune's folder. Raises SourceError."""
    before, after = open_intact_folder(base), open_intact_folder(source)
    names = _layers(after)
    if not names:
        raise SourceError(f"{source}: holds no layer that is quantized to NVFP4")
    for name in names:
        _check(before, after, f"{name}.weight")
    groups = {name: group for group in fused_groups(names) for name in group}
    found: dict[str, LayerRisk] = {}
    for name in track(names):
        if name not in found:
            group = groups.get(name, (name,))
            found |= {layer.name: layer for layer in _group(before, after, group, device)}
    return tuple(found[name] for name in names)


def _group(
    before: Folder, after: Folder, group: tuple[str, ...], device: str | torch.device
) -> list[LayerRisk]:
    """Layers that a server fuses, under their common scale."""
    largest = torch.stack([_amax(after, member, device) for member in group]).amax()
    scale = blocks.tensor_scale(largest)
    return [_layer(before, after, name, scale, device) for name in group]


def _layers(folder: Folder) -> list[str]:
    """The matrices of the decoder layers whose rows are whole blocks."""
    return [
        name.removesuffix(".weight")
        for name, entry in folder.tensors.items()
        if name.endswith(".weight")
        and _DECODER.match(name)
        and name.split(".")[-2] not in ALWAYS_KEPT
        and len(entry.shape) == 2
        and entry.shape[1] % blocks.BLOCK == 0
    ]


def _check(before: Folder, after: Folder, name: str) -> None:
    for folder in (before, after):
        entry = folder.tensors.get(name)
        if entry is None:
            raise SourceError(f"{folder.path}: has no {name}")
        if entry.dtype not in FLOATS:
            raise SourceError(f"{folder.path}: {name} is {entry.dtype}; give the model before quantization")
    shapes = [folder.tensors[name].shape for folder in (before, after)]
    if shapes[0] != shapes[1]:
        raise SourceError(f"{name}: is {list(shapes[0])} in the base and {list(shapes[1])} in the fine-tune")


def _parts(folder: Folder, name: str, device: str | torch.device) -> Iterator[Tensor]:
    columns, place = folder.tensors[name].shape[1], torch.device(device)
    size = ROWS_BYTES * (GPU_PARTS if place.type == "cuda" else 1)
    for _, part in folder.parts(name, max(1, size // (4 * columns))):
        yield pinned(part, place).to(place).float()


def _amax(folder: Folder, name: str, device: str | torch.device) -> Tensor:
    largest = torch.stack([part.abs().amax() for part in _parts(folder, f"{name}.weight", device)]).amax()
    if not torch.isfinite(largest):
        raise SourceError(f"{folder.path}: {name}.weight holds NaN or infinity, which NVFP4 cannot say")
    return largest


def _layer(before: Folder, after: Folder, name: str, scale: Tensor, device: str | torch.device) -> LayerRisk:
    delta, steps, weights = FineTuneDelta(), 0.0, 0
    pairs = (_parts(folder, f"{name}.weight", device) for folder in (before, after))
    for old, new in zip(*pairs, strict=True):
        if not torch.isfinite(old).all():
            raise SourceError(f"{before.path}: {name}.weight holds NaN or infinity")
        held = blocks.quantize(new, scale)
        delta += fine_tune_delta(blocks.dequantize(held), new, old)
        steps += blocks.BLOCK * float(blocks.step(held.scale, scale).double().square().sum())
        weights += new.numel()
    return LayerRisk(name, weights, steps, delta)
