"""Check a whole NVFP4 folder by its bytes alone: its files, its configuration, every layer, and the weights it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quantizer.core.expert_names import unwrapped_name
from quantizer.layers.fused import fused_groups
from quantizer.nvfp4.blocks import Nvfp4Tensor
from quantizer.verify import values
from quantizer.verify.folder import Folder, TensorInfo, open_folder, open_intact_folder
from quantizer.verify.layout import (
    check_layout,
    is_fp8,
    is_quantized,
    readable_layers,
    tensors_by_module,
)
from quantizer.verify.report import CheckFinding, CheckReport, Layer, RoundingStats
from quantizer.verify.scheme import read_scheme

Track = Callable[[list[str]], Iterable[str]]
FLOATS = ("BF16", "F16", "F32", "F64")
_NONE = TensorInfo("", "", ())


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """The weights of an unquantized model. Names are compared without the prefix of a vision-language wrapper."""

    folder: Folder
    names: dict[str, str]

    @classmethod
    def open(cls, path: Path) -> SourceWeights:
        """Raises FolderError if the folder is incomplete."""
        folder = open_intact_folder(path)
        return cls(folder, {unwrapped_name(name): name for name in folder.tensors})

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a floating-point tensor; None if there is no such tensor."""
        entry = self.folder.tensors.get(self.names.get(unwrapped_name(name), ""))
        return entry.shape if entry and entry.dtype in FLOATS else None

    def load(self, name: str, device: str = "cpu") -> Tensor:
        return self.folder.load(self.names[unwrapped_name(name)], device)


def verify(
    folder: Path,
    source: Path | None = None,
    track: Track = iter,
    device: str = "cpu",
) -> CheckReport:
    """Check a folder; with `source`, against the weights it was made from.

    `track` iterates over the names of the layers, and may show progress. Raises FolderError if a folder cannot be checked.
    """
    held = open_folder(folder)
    scheme, findings = read_scheme(held)
    wanted = SourceWeights.open(source) if source else None
    names = readable_layers(held)
    checks = [_check_layer(held, name, wanted, device) for name in track(names)]
    findings += check_layout(held, scheme)
    findings += [finding for _, found in checks for finding in found]
    findings += _shared(held, names)
    same, changed, dropped = _others(held, wanted) if wanted else (0, [], [])
    return CheckReport(
        folder=str(folder),
        algorithm=scheme.algorithm,
        layers=tuple(layer for layer, _ in checks),
        excluded=_excluded(held),
        findings=(*held.findings, *findings, *dropped),
        same=same,
        changed=tuple(changed),
    )


def load_layer(folder: Folder, name: str, device: str = "cpu") -> Nvfp4Tensor:
    """Load a quantized layer as stored."""
    packed, scale = folder.load(f"{name}.weight", device), folder.load(f"{name}.weight_scale", device)
    return Nvfp4Tensor(packed, scale, folder.load(f"{name}.weight_scale_2", device).reshape(()))


def _check_layer(
    held: Folder, name: str, wanted: SourceWeights | None, device: str
) -> tuple[Layer, list[CheckFinding]]:
    tensor, input_scale = load_layer(held, name, device), _input_scale(held, name)
    findings = values.check_scales(name, tensor, input_scale)
    fit = None
    if wanted and not any(finding.severity == "error" for finding in findings):
        fit, found = _compare(name, tensor, wanted)
        findings += found
    scale = tensor.scale.float()
    layer = Layer(
        name=name,
        shape=(*tensor.packed.shape[:-1], 2 * tensor.packed.shape[-1]),
        tensor_scale=tensor.tensor_scale.item(),
        input_scale=None if input_scale is None else input_scale.item(),
        smallest_scale=scale.min().item(),
        largest_scale=scale.max().item(),
        fit=fit,
    )
    return layer, findings


def _input_scale(held: Folder, name: str) -> Tensor | None:
    scale = f"{name}.input_scale"
    return held.load(scale).reshape(()) if scale in held.tensors else None


def _compare(
    name: str, tensor: Nvfp4Tensor, wanted: SourceWeights
) -> tuple[RoundingStats | None, list[CheckFinding]]:
    weight = f"{name}.weight"
    shape = (*tensor.packed.shape[:-1], 2 * tensor.packed.shape[-1])
    if findings := list(_fits(wanted, weight, shape)):
        return None, findings
    source = wanted.load(weight, str(tensor.packed.device))
    fit = values.compare_weights(tensor, source)
    return fit, values.findings_of(name, tensor, source, fit)


def _fits(model: SourceWeights, weight: str, shape: tuple[int, ...]) -> Iterable[CheckFinding]:
    found = model.shape(weight)
    if found is None:
        yield CheckFinding("source_missing", weight, f"{model.folder.path} has no such weight")
    elif found != shape:
        detail = f"{list(found)} in {model.folder.path}, {list(shape)} here"
        yield CheckFinding("source_shape", weight, detail)


def _shared(held: Folder, layers: list[str]) -> Iterable[CheckFinding]:
    for group in fused_groups(layers):
        for part in ("weight_scale_2", "input_scale"):
            names = [f"{name}.{part}" for name in group if f"{name}.{part}" in held.tensors]
            if len(names) == len(group):
                yield from values.check_shared(group, part, [held.load(name) for name in names])


def _others(held: Folder, wanted: SourceWeights) -> tuple[int, list[str], list[CheckFinding]]:
    """The tensors that are not quantized: the number that equal the source, those that differ, and those that are
    missing."""
    packed = {name for name, parts in tensors_by_module(held).items() if is_quantized(parts) or is_fp8(parts)}
    plain = [name for name in held.tensors if name.rpartition(".")[0] not in packed]
    common = [name for name in plain if wanted.shape(name) == held.tensors[name].shape]
    changed = sorted(name for name in common if not _same(held, wanted, name))
    known = {unwrapped_name(name) for name in (*held.tensors, *held.unread)}
    tied = held.config.get("tie_word_embeddings")
    gone = sorted(wanted.names.keys() - known - ({"lm_head.weight"} if tied else set()))
    return len(common) - len(changed), changed, [CheckFinding("dropped", name) for name in gone]


def _same(held: Folder, wanted: SourceWeights, name: str) -> bool:
    """Whether a tensor of the same shape has the source's numbers, in the folder's type."""
    rows = held.rows_of_a_part(name)
    theirs = wanted.folder.parts(wanted.names[unwrapped_name(name)], rows)
    pairs = zip(held.parts(name, rows), theirs, strict=True)
    return all(torch.equal(a, b.to(a.dtype)) for (_, a), (_, b) in pairs)


def _excluded(held: Folder) -> tuple[str, ...]:
    """Modules with a matrix that is not quantized."""
    found = tensors_by_module(held).items()
    return tuple(
        sorted(
            n
            for n, parts in found
            if not (is_quantized(parts) or is_fp8(parts)) and len(parts.get("weight", _NONE).shape) > 1
        )
    )
