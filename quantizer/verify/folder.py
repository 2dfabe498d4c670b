"""Read a Hugging Face folder: JSON and safetensors only. No other file is opened and no link is followed.

`open_folder` lists every tensor with its type and shape from the headers of the shards; `Folder.load` reads one.
Problems with the files become findings. Only a folder that cannot be examined at all is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from quantizer.core.errors import SourceError
from quantizer.verify.report import CheckFinding

INDEX: Final = "model.safetensors.index.json"
PICKLES: Final = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
MAX_JSON_BYTES: Final = 64 * 2**20


class FolderError(SourceError):
    """A folder cannot be checked. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a shard. dtype: as safetensors writes it: U8, F8_E4M3, F32, BF16, …"""

    shard: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Folder:
    """The contents of a folder. unread: tensors that the index assigns to a shard that cannot be read."""

    path: Path
    tensors: Mapping[str, TensorInfo]
    config: Mapping[str, Any]
    quant_config: Mapping[str, Any]
    unread: frozenset[str] = frozenset()
    findings: tuple[CheckFinding, ...] = ()

    def load(self, name: str) -> Tensor:
        """Read one tensor, as stored."""
        with safe_open(self.path / self.tensors[name].shard, framework="pt") as shard:
            tensor: Tensor = shard.get_tensor(name)
        return tensor


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
    """List a folder. With `follow_links` its files may be links, as in the cache of huggingface_hub.

    Raises FolderError if there is no such folder, or no safetensors file in it.
    """
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
    """List a folder whose files may be links. Pickles in it are ignored.

    Raises FolderError for the first finding that is an error.
    """
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
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError(f"larger than {MAX_JSON_BYTES >> 20} MiB")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        reading.report("bad_json", name, f"cannot be read as JSON: {error}")
        return {}
    if not isinstance(document, dict):
        reading.report("bad_json", name, "must be an object")
        return {}
    return document


def _read_index(reading: _Reading) -> dict[str, str]:
    """The index as a mapping from tensor to shard; entries that are not plain file names are reported and left out."""
    document = _read_json(reading, INDEX)
    if not document:
        return {}
    index = document.get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(shard, str) for shard in index.values()):
        reading.report("bad_index", INDEX, "weight_map must map tensors to files")
        return {}
    odd = sorted({shard for shard in index.values() if Path(shard).name != shard or not shard})
    for shard in odd:
        reading.report("bad_index", INDEX, f"{shard!a} is not the name of a file in the folder")
    return {name: shard for name, shard in index.items() if shard not in odd}


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
            return {n: TensorInfo(shard, s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()}
    except (SafetensorError, OSError) as error:
        reading.report("broken_shard", shard, f"cut off or damaged: {error}")
        return None


def _compare(reading: _Reading, shard: str, listed: set[str], held: Iterable[str]) -> None:
    held = set(held)
    for name in sorted(listed - held):
        reading.report("bad_index", name, f"the index places it in {shard}, which does not hold it")
    for name in sorted(held - listed):
        reading.report("bad_index", name, f"{shard} holds it, the index does not say so")
