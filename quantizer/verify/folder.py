"""Read a Hugging Face folder: JSON and safetensors only. No other file is opened and no link is followed.

Problems with the files become findings. Only a folder that cannot be examined at all is an error.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from quantizer.core.errors import SourceError
from quantizer.core.json_file import read_object
from quantizer.verify.report import CheckFinding

INDEX: Final = "model.safetensors.index.json"
PICKLES: Final = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
PART_BYTES: Final = 64 * 2**20
"""How much of a tensor is mapped into memory at a time."""
TYPES: Final = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "U8": torch.uint8,
    "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
    "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64,
}  # fmt: skip
"""safetensors' name of a type, and torch's."""
LONGEST_NAME: Final = 255
"""Bytes of a file's name: asked for a longer one, file systems raise."""


class FolderError(SourceError):
    """A folder cannot be checked. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a shard. dtype: as safetensors writes it: U8, F8_E4M3, F32, BF16, … stacked: for an expert's tensor that is
    stored within one for all experts, the name of that, the expert and its rows there."""

    shard: str
    dtype: str
    shape: tuple[int, ...]
    stacked: tuple[str, int, slice] | None = None

    @property
    def bytes(self) -> int:
        return TYPES[self.dtype].itemsize * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Folder:
    """The contents of a folder. unread: tensors that the index assigns to a shard that cannot be read."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    config: Mapping[str, Any]
    quant_config: Mapping[str, Any]
    unread: frozenset[str] = frozenset()
    findings: tuple[CheckFinding, ...] = ()

    @property
    def text_config(self) -> dict[str, Any]:
        """The configuration of the text model, with what the whole model says besides."""
        inner = self.config.get("text_config")
        return {**self.config, **(inner if isinstance(inner, dict) else {})}

    def load(self, name: str, device: str | torch.device = "cpu") -> Tensor:
        """Read one tensor, as stored. On the CPU it is a view of the file."""
        if torch.device(device).type != "cpu":
            return self.copy(name, device)
        if self.tensors[name].stacked:
            return torch.cat([part for _, part in self.parts(name)])
        with safe_open(self.path / self.tensors[name].shard, framework="pt") as shard:
            tensor: Tensor = shard.get_tensor(name)
        return tensor

    def parts(self, name: str, rows: int | None = None) -> Iterator[tuple[Any, Tensor]]:
        """A tensor in order, as the numbers of rows and the rows, so that a matrix takes no more memory than one part.

        A tensor that cannot be cut comes as it is, with `...`.
        """
        entry = self.tensors[name]
        if not entry.shape or 0 in entry.shape:
            yield ..., self.load(name)
            return
        step = rows or self.rows_of_a_part(name)
        for begin in range(0, entry.shape[0], step):
            place = slice(begin, min(begin + step, entry.shape[0]))
            with safe_open(self.path / entry.shard, framework="pt") as shard:
                part: Tensor = _rows(shard, name, entry, place)
            yield place, part

    def rows_of_a_part(self, name: str) -> int:
        """How many rows make about PART_BYTES."""
        entry = self.tensors[name]
        return max(1, PART_BYTES // max(1, TYPES[entry.dtype].itemsize * math.prod(entry.shape[1:])))

    def copy(self, name: str, device: str | torch.device = "cpu", dtype: torch.dtype | None = None) -> Tensor:
        """Read one tensor into memory of its own on a device, part by part. dtype: to round to; by default as stored."""
        entry = self.tensors[name]
        made = torch.empty(entry.shape, dtype=dtype or TYPES[entry.dtype], device=device)
        with torch.no_grad():
            for place, part in self.parts(name):
                made[place].copy_(pinned(part, made.device), non_blocking=True)
        return made


def _rows(shard: Any, name: str, entry: TensorInfo, place: slice) -> Tensor:
    """Some rows of a tensor of an open shard."""
    if entry.stacked is None:
        rows: Tensor = shard.get_slice(name)[place]
        return rows
    stack, index, inside = entry.stacked
    part: Tensor = shard.get_slice(stack)[index, inside.start + place.start : inside.start + place.stop]
    return part


def pinned(part: Tensor, device: torch.device) -> Tensor:
    """A view of a file, in pinned memory if a GPU is to copy it: from pageable memory it copies at a fraction of the
    speed. torch keeps pinned memory for the next part and does not hand it out before the copy has ended."""
    return part.pin_memory() if device.type == "cuda" else part


@dataclass(slots=True)
class _Reading:
    """A folder while it is being read."""

    path: Path
    follow_links: bool
    findings: list[CheckFinding] = field(default_factory=list)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)

    def report(self, code: str, where: str, detail: str = "") -> None:
        self.findings.append(CheckFinding(code, where, detail))

    def refused(self, name: str) -> bool:
        return not self.follow_links and (self.path / name).is_symlink()


def open_folder(path: Path, follow_links: bool = False) -> Folder:
    """List a folder; with `follow_links` its files may be links, as in huggingface_hub's cache. Raises FolderError."""
    if not path.is_dir():
        raise FolderError(f"{path}: no such folder")
    reading = _Reading(path, follow_links)
    _look_around(reading)
    config = _read_json(reading, "config.json")
    quant_config = _read_json(reading, "hf_quant_config.json")
    index = _read_index(reading)
    shards = sorted(set(index.values())) if index else sorted(p.name for p in path.glob("*.safetensors"))
    if not shards:
        raise FolderError(f"{path}: there is no safetensors file")
    _read_shards(reading, shards, index)
    return Folder(
        path, reading.tensors, config, quant_config, frozenset(reading.unread), tuple(reading.findings)
    )


def open_intact_folder(path: Path) -> Folder:
    """List a folder whose files may be links; pickles are ignored. Raises FolderError for the first error."""
    folder = open_folder(path, follow_links=True)
    for finding in folder.findings:
        if finding.severity == "error" and finding.code != "pickle":
            raise FolderError(f"{path}: {finding}")
    return folder


def _look_around(reading: _Reading) -> None:
    for entry in sorted(reading.path.iterdir()):
        if reading.refused(entry.name):
            reading.report("link", entry.name)
        elif entry.suffix in PICKLES:
            reading.report("pickle", entry.name)


def _read_json(reading: _Reading, name: str) -> dict[str, Any]:
    """An object from a JSON file; empty if the file does not exist or is not a JSON object."""
    path = reading.path / name
    if not path.is_file() or reading.refused(name):
        return {}
    try:
        return read_object(path)
    except SourceError as error:
        reading.report("bad_json", name, str(error).removeprefix(f"{path}: "))
        return {}


def _read_index(reading: _Reading) -> dict[str, str]:
    """The index as a mapping from tensor to shard; entries that are not plain file names are reported and left out."""
    document = _read_json(reading, INDEX)
    if not document:
        return {}
    index = document.get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(shard, str) for shard in index.values()):
        reading.report("bad_index", INDEX, "weight_map must map tensors to files")
        return {}
    odd = sorted({shard for shard in index.values() if not _is_file_name(shard)})
    for shard in odd:
        reading.report("bad_index", INDEX, f"{shard!a} is not the name of a file in the folder")
    return {name: shard for name, shard in index.items() if shard not in odd}


def _is_file_name(name: object) -> bool:
    """Whether this may be the name of a file in a folder: no path, and no longer than file systems take."""
    if not isinstance(name, str) or name in ("", ".", "..") or "\0" in name:
        return False
    return Path(name).name == name and len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME


def _read_shards(reading: _Reading, shards: Iterable[str], index: Mapping[str, str]) -> None:
    for shard in shards:
        listed = {name for name, place in index.items() if place == shard}
        held = _read_header(reading, shard)
        if held is None:
            reading.unread |= listed
            continue
        for name in sorted(reading.tensors.keys() & held.keys()):
            reading.report("duplicate", name, f"in {reading.tensors[name].shard} and in {shard}")
        reading.tensors |= held
        if index:
            _compare(reading, shard, listed, held.keys())


def _read_header(reading: _Reading, shard: str) -> dict[str, TensorInfo] | None:
    path = reading.path / shard
    if reading.refused(shard):
        return None  # reported already
    if not path.is_file():
        reading.report("missing_shard", shard)
        return None
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            held = {n: TensorInfo(shard, s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()}
    except (SafetensorError, OSError) as error:
        reading.report("broken_shard", shard, f"cut off or damaged: {error}")
        return None
    if odd := next((name for name, entry in held.items() if entry.dtype not in TYPES), None):
        reading.report(
            "broken_shard", shard, f"{odd} is of the type {held[odd].dtype}, which is not read here"
        )
        return None
    return held


def _compare(reading: _Reading, shard: str, listed: set[str], held: Iterable[str]) -> None:
    held = set(held)
    for name in sorted(listed - held):
        reading.report("bad_index", name, f"the index places it in {shard}, which does not hold it")
    for name in sorted(held - listed):
        reading.report("bad_index", name, f"{shard} holds it, the index does not say so")
