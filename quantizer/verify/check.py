"""The check of an NVFP4 folder as a whole: open, read the configuration, look at every layer, compare.

It trusts neither ModelOpt nor transformers: the folder's own bytes and `quantizer.nvfp4` are all it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quantizer.layers.fused import groups
from quantizer.nvfp4.blocks import Nvfp4
from quantizer.verify import values
from quantizer.verify.folder import Entry, Folder, FolderError, open_folder
from quantizer.verify.layout import check_layout, modules, quantized, readable_layers
from quantizer.verify.report import Delta, Finding, Fit, Layer, Report
from quantizer.verify.scheme import read_scheme

Track = Callable[[list[str]], Iterable[str]]
FLOATS = ("BF16", "F16", "F32", "F64")
_NONE = Entry("", "", ())


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that is not quantized, by names that do not tell a vision-language wrapping from none."""

    folder: Folder
    names: dict[str, str]

    @classmethod
    def open(cls, path: Path) -> Weights:
        """Raises FolderError if the folder is not whole."""
        folder = open_folder(path, follow_links=True)
        for finding in folder.findings:
            if (
                finding.severity == "error" and finding.code != "pickle"
            ):  # a pickle beside shards is not opened
                raise FolderError(f"{path}: {finding}")
        return cls(folder, {bare(name): name for name in folder.tensors})

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Of a tensor of floats; None if there is none of this name."""
        entry = self.folder.tensors.get(self.names.get(bare(name), ""))
        return entry.shape if entry and entry.dtype in FLOATS else None

    def load(self, name: str) -> Tensor:
        return self.folder.load(self.names[bare(name)])


def bare(name: str) -> str:
    """A tensor's name without the part that a vision-language model adds."""
    return name.replace("language_model.", "", 1)


def verify(folder: Path, source: Path | None = None, base: Path | None = None, track: Track = iter) -> Report:
    """Check a folder; with `source` against the weights it was made from, with `base` what became of a fine-tune.

    source, base: folders of a Hugging Face model in BF16, FP16 or FP32; their files may be links. track: goes
    through the names of the layers, and may show how far it is. Raises FolderError if a folder cannot be looked at.
    """
    held = open_folder(folder)
    scheme, findings = read_scheme(held)
    wanted = Weights.open(source) if source else None
    before = Weights.open(base) if base else None
    checks = [_check_layer(held, name, wanted, before) for name in track(readable_layers(held))]
    findings += check_layout(held, scheme)
    findings += [finding for _, found in checks for finding in found]
    findings += _shared(held, readable_layers(held))
    same, changed, dropped = _others(held, wanted) if wanted else (0, [], [])
    return Report(
        folder=str(folder),
        algorithm=scheme.algorithm,
        layers=tuple(layer for layer, _ in checks),
        excluded=_excluded(held),
        findings=(*held.findings, *findings, *dropped),
        same=same,
        changed=tuple(changed),
    )


def load_layer(folder: Folder, name: str) -> Nvfp4:
    """A quantized layer of a folder, as stored."""
    packed, scale = folder.load(f"{name}.weight"), folder.load(f"{name}.weight_scale")
    return Nvfp4(packed, scale, folder.load(f"{name}.weight_scale_2").reshape(()))


def _check_layer(
    held: Folder, name: str, wanted: Weights | None, before: Weights | None
) -> tuple[Layer, list[Finding]]:
    tensor, input_scale = load_layer(held, name), _input_scale(held, name)
    findings = values.check_scales(name, tensor, input_scale)
    fit, delta = None, None
    if wanted and not any(finding.severity == "error" for finding in findings):
        fit, delta, found = _compare(name, tensor, wanted, before)
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
        delta=delta,
    )
    return layer, findings


def _input_scale(held: Folder, name: str) -> Tensor | None:
    scale = f"{name}.input_scale"
    return held.load(scale).reshape(()) if scale in held.tensors else None


def _compare(
    name: str, tensor: Nvfp4, wanted: Weights, before: Weights | None
) -> tuple[Fit | None, Delta | None, list[Finding]]:
    weight = f"{name}.weight"
    shape = (*tensor.packed.shape[:-1], 2 * tensor.packed.shape[-1])
    findings = [f for model in (wanted, before) if model for f in _fits(model, weight, shape)]
    if findings:
        return None, None, findings
    source = wanted.load(weight)
    fit, delta = values.measure(tensor, source, before.load(weight) if before else None)
    return fit, delta, values.judge(name, tensor, source, fit)


def _fits(model: Weights, weight: str, shape: tuple[int, ...]) -> Iterable[Finding]:
    found = model.shape(weight)
    if found is None:
        yield Finding("source_missing", weight, f"{model.folder.path} has no such weight")
    elif found != shape:
        detail = f"{list(found)} in {model.folder.path}, {list(shape)} here"
        yield Finding("source_shape", weight, detail)


def _shared(held: Folder, layers: list[str]) -> Iterable[Finding]:
    for group in groups(layers):
        for part in ("weight_scale_2", "input_scale"):
            names = [f"{name}.{part}" for name in group if f"{name}.{part}" in held.tensors]
            if len(names) == len(group):
                yield from values.check_shared(group, part, [held.load(name) for name in names])


def _others(held: Folder, wanted: Weights) -> tuple[int, list[str], list[Finding]]:
    """The tensors that are not quantized: how many are as in the source, which are not, and which are gone."""
    packed = {name for name, parts in modules(held).items() if quantized(parts)}
    plain = [name for name in held.tensors if name.rpartition(".")[0] not in packed]
    common = [name for name in plain if wanted.shape(name) == held.tensors[name].shape]
    changed = sorted(name for name in common if not _same(held.load(name), wanted.load(name)))
    known = {bare(name) for name in (*held.tensors, *held.unread)}
    tied = held.config.get("tie_word_embeddings")
    gone = sorted(wanted.names.keys() - known - ({"lm_head.weight"} if tied else set()))
    return len(common) - len(changed), changed, [Finding("dropped", name) for name in gone]


def _same(ours: Tensor, theirs: Tensor) -> bool:
    return torch.equal(ours, theirs.to(ours.dtype))


def _excluded(held: Folder) -> tuple[str, ...]:
    """Modules with a matrix that is not quantized."""
    found = modules(held).items()
    return tuple(
        sorted(n for n, parts in found if not quantized(parts) and len(parts.get("weight", _NONE).shape) > 1)
    )
