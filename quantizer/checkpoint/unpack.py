"""Convert an NVFP4 folder to plain BF16 with exactly the values that its bytes represent, for engines without NVFP4.

Inputs are not rounded in the result, so it shows the effect of rounding the weights alone.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from gates.artefact import artefact
from gates.artefact.artefact import MANIFEST, Artefact, Provenance
from quantizer.checkpoint.shards import (
    SHARD_BYTES,
    Group,
    ShardTensor,
    copy_others,
    write_weights,
)
from quantizer.checkpoint.source import root_digest_of
from quantizer.core import cost
from quantizer.core.atomic_output import atomic_folder
from quantizer.core.errors import SourceError
from quantizer.core.json_file import write_object
from quantizer.nvfp4 import blocks
from quantizer.verify.check import load_layer, verify
from quantizer.verify.folder import Folder, open_folder
from quantizer.verify.layout import SCALES, refuse_fp8
from quantizer.verify.report import Layer

FORMAT: Final = "hf-bf16"


def unpack(path: Path, out: Path, *, now: datetime, shard_bytes: int = SHARD_BYTES) -> Artefact:
    """Write a folder's model in BF16; the manifest of `out`. Raises SourceError, ExportError."""
    report = verify(path)
    faults = [finding for finding in report.findings if finding.severity == "error"]
    if faults:
        raise SourceError(f"{path}: is not sound: {faults[0]}")
    folder, packed = open_folder(path), report.layers
    refuse_fp8(folder)
    if not folder.config:
        raise SourceError(f"{path}: has no config.json, so nothing could load what came of it")
    manifest = artefact.load(path) if (path / MANIFEST).is_file() else None
    with atomic_folder(out) as work:
        write_weights(work, _plan(folder, packed), shard_bytes)
        config = {key: value for key, value in folder.config.items() if key != "quantization_config"}
        write_object(work / "config.json", json.loads(json.dumps(config)))
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
        )


def _plan(folder: Folder, packed: Sequence[Layer]) -> list[Group]:
    """Every tensor, a group each; a layer's in BF16."""
    layers = {layer.name: layer for layer in packed}
    weights = {f"{name}.weight": name for name in layers}
    gone = {f"{name}.{part}" for name in layers for part in SCALES}
    made: list[Group] = []
    for name, entry in folder.tensors.items():
        if name in weights:
            layer = layers[weights[name]]
            make = partial(_values, folder, layer)
            made.append([ShardTensor(name, "BF16", layer.shape, make)])
        elif name not in gone:
            made.append([ShardTensor(name, entry.dtype, entry.shape, partial(_bytes, folder, name))])
    return made


def _values(folder: Folder, layer: Layer) -> list[Tensor]:
    return [blocks.dequantize(load_layer(folder, layer.name), torch.bfloat16)]


def _bytes(folder: Folder, name: str) -> Iterator[Tensor]:
    return (part for _, part in folder.parts(name))
