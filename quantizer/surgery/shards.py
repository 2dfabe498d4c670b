"""Rewrite safetensors files, copying byte ranges, so that memory stays small for any model.

Tensors are sorted as huggingface/safetensors sorts them, wide types first, so that each begins at a multiple of its
size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO, Final

import torch
from safetensors import safe_open

from gates.artefact.artefact import Hashed
from quantizer.core.errors import SourceError
from quantizer.core.hashed_file import HashedFile
from quantizer.core.json_file import write_object
from quantizer.core.safetensors_header import SIZES, header_text, read_header
from quantizer.surgery.checkpoint import OutputTensor
from quantizer.verify.folder import INDEX

CHUNK: Final = 2**24


def write_shards(source: Path, target: Path, parts: Mapping[str, OutputTensor]) -> Hashed:
    """Write every tensor to a shard with the name of the one it came from, and an index if there is more than one.

    Returns size and digest of each shard. Raises SourceError for an unknown type and for FP8 weights that are not finite; OSError if writing fails.
    """
    shards: dict[str, dict[str, OutputTensor]] = {}
    for name, part in parts.items():
        shards.setdefault(part.shard, {})[name] = part
    written = {shard: _write_shard(source, target, shard, shards[shard]) for shard in sorted(shards)}
    total = sum(size for size, _ in written.values())
    if (source / INDEX).is_file():
        index = {name: part.shard for name, part in sorted(parts.items())}
        document = {"metadata": {"total_size": total}, "weight_map": index}
        write_object(target / INDEX, document)
    return {shard: flushed.result() for shard, (_, flushed) in written.items()}


def _write_shard(
    source: Path, target: Path, shard: str, parts: Mapping[str, OutputTensor]
) -> tuple[int, Future[tuple[int, str]]]:
    """Write one shard. Returns the bytes of its tensors, and size and digest of the file once it is on the disk."""
    order = sorted(parts, key=lambda name: (-_size(name, parts[name]), name))
    sizes = {name: math.prod(parts[name].shape) * _size(name, parts[name]) for name in order}
    ranges = read_header(source / shard)
    header = header_text((name, parts[name].dtype, parts[name].shape, sizes[name]) for name in order)
    file = HashedFile(target / shard)
    try:
        with (source / shard).open("rb") as held:
            file.write(header)
            for name in order:
                part = parts[name]
                if part.scale is None:
                    copy_range(held, file, ranges[part.name].begin, ranges[part.name].bytes)
                else:
                    file.write(_dequantized(source, part))
    except BaseException:
        file.abandon()
        raise
    return sum(sizes.values()), file.finish()


def _size(name: str, part: OutputTensor) -> int:
    if part.dtype not in SIZES:
        raise SourceError(f"{name}: tensors of type {part.dtype} are not known here")
    return SIZES[part.dtype]


def copy_range(source: BinaryIO, target: HashedFile, begin: int, length: int) -> None:
    """Copy bytes in chunks. Raises SourceError if the source ends early."""
    source.seek(begin)
    while length:
        piece = source.read(min(CHUNK, length))
        if not piece:
            raise SourceError(f"{source.name}: ends in the middle of a tensor")
        target.write(piece)
        length -= len(piece)


def _dequantized(source: Path, part: OutputTensor) -> bytes:
    """FP8 weights times their scale (one, or one for each row) in BF16, rounded once."""
    assert part.scale is not None
    weight, scale = _load(source, part.shard, part.name), _find(source, part)
    value = weight.float() * scale.float().reshape(-1, *[1] * (weight.ndim - 1))
    if not torch.isfinite(value).all():
        raise SourceError(f"{part.name}: holds NaN or infinity")
    return value.to(torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes()


def _find(source: Path, part: OutputTensor) -> torch.Tensor:
    """The scale of a tensor, which the exporter may have put into another shard."""
    assert part.scale is not None
    for shard in (part.shard, *sorted(path.name for path in source.glob("*.safetensors"))):
        if part.scale in read_header(source / shard):
            return _load(source, shard, part.scale)
    raise SourceError(f"{part.scale}: is in no shard")


def _load(source: Path, shard: str, name: str) -> torch.Tensor:
    with safe_open(source / shard, framework="pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)
    return tensor
