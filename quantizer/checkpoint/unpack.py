"""Convert an NVFP4 folder to plain BF16 with exactly the values that its bytes represent.

For engines without NVFP4. The reader is that of the checker. Inputs are not rounded in the result, so it shows the
effect of rounding the weights alone; a server of the NVFP4 folder rounds inputs too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gates.artefact import artefact
from gates.artefact.manifest import MANIFEST, Artefact, Provenance
from quantizer.checkpoint.shards import (
    SHARD_BYTES,
    Group,
    ShardTensor,
    copy_others,
    write_json,
    write_weights,
)
from quantizer.checkpoint.source import root_digest_of
from quantizer.core import cost
from quantizer.core.atomic_output import atomic_folder
from quantizer.core.errors import SourceError
from quantizer.nvfp4 import blocks
from quantizer.verify.check import load_layer, verify
from quantizer.verify.folder import Folder, open_folder
from quantizer.verify.layout import SCALES

FORMAT: Final = "hf-bf16"


def unpack(path: Path, out: Path, *, now: datetime, shard_bytes: int = SHARD_BYTES) -> Artefact:
    """Write a folder's model in BF16. Returns the manifest of `out`.

    Raises SourceError if the folder is not sound, ExportError if the result cannot be written.
    """
    report = verify(path)
    faults = [finding for finding in report.findings if finding.severity == "error"]
    if faults:
        raise SourceError(f"{path}: is not sound: {faults[0]}")
    folder, packed = open_folder(path), [layer.name for layer in report.layers]
    if not folder.config:
        raise SourceError(f"{path}: has no config.json, so nothing could load what came of it")
    manifest = artefact.load(path) if (path / MANIFEST).is_file() else None
    with atomic_folder(out) as work:
        hashed = write_weights(work, _plan(folder, packed), shard_bytes)
        config = {key: value for key, value in folder.config.items() if key != "quantization_config"}
        write_json(work / "config.json", json.loads(json.dumps(config)))
        copy_others(path, work)
        return artefact.seal(
            work,
            name=manifest.name if manifest else path.resolve().name,
            format=FORMAT,
            created=now,
            provenance=Provenance(
                base_model=manifest.provenance.base_model if manifest else None,
                parents={"source": root_digest_of(path, manifest)},
                recipe={"unpacked": len(packed)},
                tools=cost.tools(),
            ),
            hashed=hashed,
        )


def _plan(folder: Folder, packed: list[str]) -> list[Group]:
    """Every tensor, a group each; a layer's in BF16."""
    weights = {f"{name}.weight": name for name in packed}
    gone = {f"{name}.{part}" for name in packed for part in SCALES}
    made: list[Group] = []
    for name, entry in folder.tensors.items():
        if name in weights:
            shape = (*entry.shape[:-1], 2 * entry.shape[-1])
            layer = weights[name]
            made.append([ShardTensor(name, "BF16", shape, partial(_values, folder, layer))])
        elif name not in gone:
            made.append([ShardTensor(name, entry.dtype, entry.shape, partial(_bytes, folder, name))])
    return made


def _values(folder: Folder, layer: str) -> list[Tensor]:
    return [blocks.dequantize(load_layer(folder, layer), torch.bfloat16)]


def _bytes(folder: Folder, name: str) -> Iterator[Tensor]:
    return (part for _, part in folder.parts(name))
