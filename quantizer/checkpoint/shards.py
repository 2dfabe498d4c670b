"""Write the files of a Hugging Face folder: weights in shards, settings as JSON, everything else copied.

The weights are planned first (names, types, shapes) and made one after the other, so that no more than a part of one tensor is
in memory.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from torch import Tensor

from gates.artefact.artefact import MANIFEST
from quantizer.core.errors import CheckpointError
from quantizer.core.json_file import write_object
from quantizer.verify.folder import INDEX, TYPES

SHARD_BYTES: Final = 4 * 2**30
MODE: Final = 0o644
"""A server may run as another user."""
COPIED: Final = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "LICENSE*", "NOTICE*")
WRITTEN: Final = ("config.json", "hf_quant_config.json", INDEX, MANIFEST)


@dataclass(frozen=True, slots=True)
class ShardTensor:
    """A tensor to be written. dtype: as safetensors names it. make: returns its numbers, whole or in parts of whole rows;
    called once, when everything planned before it has been made."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    make: Callable[[], Iterable[Tensor]]

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return TYPES[self.dtype].itemsize

    @property
    def bytes(self) -> int:
        return self.width * math.prod(self.shape)


Group = Sequence[ShardTensor]
"""Tensors that lie in one shard."""


def write_weights(folder: Path, groups: Sequence[Group], shard_bytes: int = SHARD_BYTES) -> None:
    """Write tensors in shards, with an index if there is more than one. Raises OSError."""
    with ShardWriter(folder, groups, shard_bytes) as writer:
        for _ in groups:
            writer.write()


class ShardWriter:
    """Writes groups of tensors in their order, each when it is asked for; the index at the end of the `with` block."""

    def __init__(self, folder: Path, groups: Sequence[Group], shard_bytes: int = SHARD_BYTES) -> None:
        self.folder = folder
        self._shards = layout(groups, shard_bytes)
        self._turns = [(shard, group) for shard, held in enumerate(self._shards) for group in held]
        self._next = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if self._file:
            self._file.close()
        if kind is None and len(self._shards) > 1:
            self._write_index()

    def write(self) -> None:
        """Make and write the next group. Raises OSError."""
        shard, group = self._turns[self._next]
        if self._next == 0 or self._turns[self._next - 1][0] != shard:
            if self._file:
                self._file.close()
            path = self.folder / _shard_name(shard, len(self._shards))
            self._file = path.open("wb")
            path.chmod(MODE)
            self._file.write(_header(self._shards[shard]))
        assert self._file is not None
        for planned in group:
            left: float = planned.bytes
            for part in planned.make():
                left -= part.nbytes if part.dtype == TYPES[planned.dtype] else math.inf
                self._file.write(_on_host(part).flatten().view(torch.uint8).numpy().data)
            if left:
                raise ValueError(f"{planned.name}: not {planned.bytes} bytes of {planned.dtype}, as planned")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._next += 1

    def done(self) -> tuple[int, int]:
        """The number of groups that are written, and the bytes of the last file; for `skip` of a later run."""
        return self._next, self._file.tell() if self._file else 0

    def skip(self, count: int, size: int) -> None:
        """Go on where an earlier run was `done`; what it wrote after that goes. Raises CheckpointError."""
        path = self.folder / _shard_name(self._turns[count - 1][0], len(self._shards))
        if not path.is_file() or path.stat().st_size < size:
            raise CheckpointError(f"{path}: is damaged; remove {self.folder.parent} to begin again")
        self._next, self._file = count, path.open("r+b")
        self._file.truncate(size)
        self._file.seek(size)

    def _write_index(self) -> None:
        tensors = [(number, tensor) for number, group in self._turns for tensor in group]
        count = len(self._shards)
        index = {tensor.name: _shard_name(number, count) for number, tensor in tensors}
        total = sum(tensor.bytes for _, tensor in tensors)
        write_object(
            self.folder / INDEX,
            {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))},
        )


def layout(groups: Sequence[Group], shard_bytes: int) -> list[list[Group]]:
    """The groups of each shard, with the wide types of each group first, so that every tensor begins at a multiple of its
    width. Where that is impossible, a new shard begins."""
    shards: list[list[Group]] = []
    size = 0
    for group in groups:
        ordered = sorted(group, key=lambda tensor: -tensor.width)
        more = sum(tensor.bytes for tensor in ordered)
        if not shards or (size and (size + more > shard_bytes or size % ordered[0].width)):
            shards.append([])
            size = 0
        shards[-1].append(ordered)
        size += more
    return shards


def _header(groups: Sequence[Group]) -> bytes:
    """The beginning of a safetensors file with these tensors in this order, without gaps: eight bytes with the length of what
    follows; a JSON object, padded with spaces to eight bytes (huggingface/safetensors, README)."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for one in (one for group in groups for one in group):
        begin, end = end, end + one.bytes
        entries[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def copy_others(source: Path, folder: Path, template: str | None = None) -> None:
    """Copy tokenizer, templates and settings, including subfolders. Links become files. Code, pickles and hidden
    files are not copied. template: of chats, in place of the source's."""
    if template:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        hidden = any(part.startswith(".") for part in place.parts)
        if hidden or not path.is_file() or (folder / place).exists() or place.name in WRITTEN:
            continue
        if any(fnmatchcase(place.name, pattern) for pattern in COPIED):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / place)


def _shard_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number + 1:05}-of-{count:05}.safetensors"


def _on_host(part: Tensor) -> Tensor:
    """A tensor in plain order on the CPU. From a GPU it comes by pinned memory, several times as fast."""
    part = part.detach().contiguous()
    if not part.is_cuda:
        return part
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part)
