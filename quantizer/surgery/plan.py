"""Plan, report and apply the operations that make a model folder loadable for a server.

Every operation examines the checkpoint, says what it found, and returns the checkpoint as it should be. Only `apply_in_place`
replaces the original.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from gates.artefact import artefact
from gates.artefact.artefact import Artefact, Provenance
from quantizer.checkpoint.shards import ShardTensor, write_weights
from quantizer.checkpoint.source import root_digest_of
from quantizer.core.atomic_output import atomic_folder
from quantizer.core.errors import ExportError, SourceError
from quantizer.core.json_file import write_object
from quantizer.surgery.algorithm import quantization
from quantizer.surgery.checkpoint import (
    FILE_MODE,
    FOLDER_MODE,
    ModelCheckpoint,
    OutputTensor,
    open_checkpoint,
)
from quantizer.surgery.operation import OperationResult, Server, fine, needed
from quantizer.surgery.tokenizer import rope, tokenizer
from quantizer.surgery.wrap import names, preprocessor
from quantizer.verify.folder import Folder

Operation = Callable[[ModelCheckpoint, Server], tuple[OperationResult, ModelCheckpoint]]
OPERATIONS: Final[tuple[Operation, ...]] = (quantization, names, preprocessor, tokenizer, rope)


@dataclass(frozen=True, slots=True)
class SurgeryPlan:
    """before: the folder as it is. after: as it should be. uid: the owner that was requested, if any."""

    before: ModelCheckpoint
    after: ModelCheckpoint
    server: Server
    steps: tuple[OperationResult, ...]
    uid: int | None = None

    @property
    def refused(self) -> tuple[OperationResult, ...]:
        return tuple(step for step in self.steps if step.state == "refused")

    @property
    def needed(self) -> tuple[OperationResult, ...]:
        return tuple(step for step in self.steps if step.state == "needed")

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.before.path),
            "server": self.server.name,
            "needed": bool(self.needed),
            "refused": bool(self.refused),
            "steps": [step.as_json() for step in self.steps],
            "left": list(self.before.left),
        }


def make_plan(folder: Path, server: Server, uid: int | None = None) -> SurgeryPlan:
    """Examine a folder. Raises SourceError if it cannot be processed at all."""
    before = open_checkpoint(folder)
    checkpoint, steps = before, []
    for operation in OPERATIONS:
        step, checkpoint = operation(checkpoint, server)
        steps.append(step)
    return SurgeryPlan(before, checkpoint, server, (*steps, access(before, uid)), uid)


def access(checkpoint: ModelCheckpoint, uid: int | None) -> OperationResult:
    """Check modes and owners: containers tend to leave files that only root can read or change."""
    changes = []
    if checkpoint.wrong_modes:
        changes.append(
            f"{len(checkpoint.wrong_modes)} modes become 0644 or 0755, such as that of {checkpoint.wrong_modes[0]}"
        )
    if uid is not None and checkpoint.owners != {uid}:
        changes.append(f"user {uid} owns the folder")
    if changes:
        return needed("access", "a server under another user must read the files", tuple(changes))
    return fine("access", "readable for all" + ("" if uid is None else f", owned by {uid}"))


def apply_plan(wanted: SurgeryPlan, out: Path, created: datetime, name: str | None = None) -> Artefact:
    """Write the folder as planned and seal it; on an error nothing is written. name: for a model that has none.

    Raises SourceError if an operation was refused, ExportError if the result cannot be written or `out` exists.
    """
    if wanted.refused:
        step = wanted.refused[0]
        raise SourceError(f"{wanted.before.path}: {step.operation}: {step.why}")
    with atomic_folder(out) as work:
        _write(wanted, work)
        sealed = _seal(wanted, work, name or out.name, created)
        _set_access(work, wanted.uid)
    return sealed


def apply_in_place(wanted: SurgeryPlan, created: datetime) -> Artefact:
    """Replace the folder by the planned one. The new folder is complete before the old one is removed. Raises as
    `apply_plan`."""
    folder = wanted.before.path.resolve()
    fresh, old = (folder.with_name(f".{folder.name}.{part}") for part in ("operated", "before-surgery"))
    shutil.rmtree(fresh, ignore_errors=True)
    if old.exists():
        raise ExportError(f"{old}: is left of an operation that was cut off; look at both and remove one")
    sealed = apply_plan(wanted, fresh, created, folder.name)
    try:
        folder.rename(old)
        fresh.rename(folder)
    except OSError as error:
        raise ExportError(f"{folder}: cannot be replaced ({error.strerror}); the result is {fresh}") from None
    shutil.rmtree(old, ignore_errors=True)
    return sealed


def _write(wanted: SurgeryPlan, work: Path) -> None:
    """Write everything but the manifest. Raises SourceError for FP8 weights that are not finite."""
    before, after = wanted.before, wanted.after
    shards: dict[str, list[ShardTensor]] = {}
    for name, part in sorted(after.parts.items()):
        make = partial(_numbers, before.tensors, part)
        shards.setdefault(part.shard, []).append(ShardTensor(name, part.dtype, part.shape, make))
    write_weights(work, [shards[shard] for shard in sorted(shards)], shard_bytes=0)  # one each
    for name, document in after.documents.items():
        if before.documents.get(name) == document:
            shutil.copyfile(before.path / name, work / name)
        else:
            write_object(work / name, document)
    for name in after.others:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(before.path / name, work / name)


def _numbers(source: Folder, part: OutputTensor) -> Iterable[Tensor]:
    """A tensor as stored; FP8 weights times their scale (one, or one for each row) in BF16, rounded once."""
    if part.scale is None:
        return (rows for _, rows in source.parts(part.name))
    weight, scale = source.load(part.name), source.load(part.scale)
    value = weight.float() * scale.float().reshape(-1, *[1] * (weight.ndim - 1))
    if not torch.isfinite(value).all():
        raise SourceError(f"{part.name}: holds NaN or infinity")
    return [value.to(torch.bfloat16)]


def _set_access(work: Path, uid: int | None) -> None:
    for path in (work, *work.rglob("*")):
        path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)
        if uid is not None and path.stat().st_uid != uid:
            try:
                os.chown(path, uid, -1)
            except PermissionError:
                raise ExportError(f"only root can give files to user {uid}; run this as that user") from None


def _seal(wanted: SurgeryPlan, work: Path, name: str, created: datetime) -> Artefact:
    manifest = wanted.before.manifest
    held = manifest.provenance if manifest else Provenance()
    recipe = {
        "surgery": wanted.server.name,
        "steps": {step.operation: list(step.changes) for step in wanted.needed},
    }
    root = root_digest_of(wanted.before.path, manifest, hidden=False)
    origin = Provenance(held.base_model, {"source": root}, recipe, held.data_digest, held.tools)
    packed = any(part.endswith(".weight_scale_2") for part in wanted.after.parts)
    form = manifest.format if manifest else "hf-nvfp4" if packed else "hf-bf16"
    title = manifest.name if manifest else name
    return artefact.seal(work, name=title, format=form, created=created, provenance=origin)
