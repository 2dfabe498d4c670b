"""Plan, report, apply: every operation looks first, says what it found, and gives the folder as it shall be.

`plan` is pure but for reading the folder, and `apply` writes another folder; the patient is never touched unless
`replace_folder` is asked to put the new one in its place. A plan of an operated folder finds nothing to do.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from gates.artefact import artefact
from gates.artefact.manifest import Artefact, FileEntry, Provenance, root_digest
from quantizer.core.atomic_output import placed
from quantizer.core.errors import ExportError, SourceError
from quantizer.surgery.algorithm import quantization
from quantizer.surgery.checkpoint import FILE_MODE, FOLDER_MODE, Patient, open_patient
from quantizer.surgery.operation import Step
from quantizer.surgery.server import Server
from quantizer.surgery.shards import write_shards
from quantizer.surgery.templates import templates
from quantizer.surgery.tokenizer import rope, tokenizer
from quantizer.surgery.wrap import names, preprocessor

Operation = Callable[[Patient, Server], tuple[Step, Patient]]
OPERATIONS: Final[tuple[Operation, ...]] = (quantization, names, preprocessor, templates, tokenizer, rope)


@dataclass(frozen=True, slots=True)
class Plan:
    """before: the folder as it lies there. after: as it shall be. uid: who shall own it, if that was asked."""

    before: Patient
    after: Patient
    server: Server
    steps: tuple[Step, ...]
    uid: int | None = None

    @property
    def refused(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.state == "refused")

    @property
    def needed(self) -> tuple[Step, ...]:
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


def plan(folder: Path, server: Server, uid: int | None = None) -> Plan:
    """Look at a folder. Raises SourceError if it cannot be operated on at all."""
    before = open_patient(folder)
    patient, steps = before, []
    for operation in OPERATIONS:
        step, patient = operation(patient, server)
        steps.append(step)
    return Plan(before, patient, server, (*steps, access(before, uid)), uid)


def access(patient: Patient, uid: int | None) -> Step:
    """Modes and owners: containers leave files that only root may read or change."""
    changes = []
    if patient.odd:
        changes.append(f"{len(patient.odd)} modes become 0644 or 0755, such as that of {patient.odd[0]}")
    if uid is not None and patient.owners != {uid}:
        changes.append(f"user {uid} owns the folder")
    if changes:
        return Step("access", "needed", "a server under another user must read the files", tuple(changes))
    return Step("access", "fine", "readable for all" + ("" if uid is None else f", owned by {uid}"))


def apply(wanted: Plan, out: Path, created: datetime, name: str | None = None) -> Artefact:
    """Write the folder as planned, sealed, and only if all of it can be written. name: of a model that has none.

    Raises SourceError if an operation was refused, ExportError if the result cannot be written or `out` is taken.
    """
    if wanted.refused:
        step = wanted.refused[0]
        raise SourceError(f"{wanted.before.path}: {step.operation}: {step.why}")
    with placed(out) as work:
        _write(wanted, work)
        sealed = _seal(wanted, work, name or out.name, created)
        _set_access(work, wanted.uid)
    return sealed


def replace_folder(wanted: Plan, created: datetime) -> Artefact:
    """The same in place: the new folder is whole before the old one goes. Raises as `apply`."""
    folder = wanted.before.path.resolve()
    fresh, old = (folder.with_name(f".{folder.name}.{part}") for part in ("operated", "before-surgery"))
    shutil.rmtree(fresh, ignore_errors=True)
    if old.exists():
        raise ExportError(f"{old}: is left of an operation that was cut off; look at both and remove one")
    sealed = apply(wanted, fresh, created, folder.name)
    try:
        folder.rename(old)
        fresh.rename(folder)
    except OSError as error:
        raise ExportError(f"{folder}: cannot be replaced ({error.strerror}); the result is {fresh}") from None
    shutil.rmtree(old, ignore_errors=True)
    return sealed


def _write(wanted: Plan, work: Path) -> None:
    before, after = wanted.before, wanted.after
    write_shards(before.path, work, after.parts)
    for name, document in after.documents.items():
        if before.documents.get(name) == document:
            shutil.copyfile(before.path / name, work / name)
        else:
            text = json.dumps(document, indent=2, ensure_ascii=False)
            (work / name).write_text(text + "\n", encoding="utf-8")
    for name in after.others:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(before.path / name, work / name)


def _set_access(work: Path, uid: int | None) -> None:
    for path in (work, *work.rglob("*")):
        path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)
        if uid is not None and path.stat().st_uid != uid:
            try:
                os.chown(path, uid, -1)
            except PermissionError:
                raise ExportError(f"only root can give files to user {uid}; run this as that user") from None


def _seal(wanted: Plan, work: Path, name: str, created: datetime) -> Artefact:
    manifest = wanted.before.manifest
    held = manifest.provenance if manifest else Provenance()
    recipe = {
        "surgery": wanted.server.name,
        "steps": {step.operation: list(step.changes) for step in wanted.needed},
    }
    origin = Provenance(
        held.base_model, {"source": root(wanted.before)}, recipe, held.data_digest, held.tools
    )
    form = manifest.format if manifest else _format(wanted.after)
    title = manifest.name if manifest else name
    return artefact.seal(work, name=title, format=form, created=created, provenance=origin)


def root(patient: Patient) -> str:
    """The digest of the patient; of a folder without a manifest, as its files lie there, hidden ones aside."""
    if patient.manifest:
        return patient.manifest.root
    files = [path for path in patient.path.rglob("*") if path.is_file()]
    files = [
        path for path in files if not any(p.startswith(".") for p in path.relative_to(patient.path).parts)
    ]
    entries = [(path.relative_to(patient.path).as_posix(), path) for path in files]
    return root_digest(FileEntry(name, *artefact.hash_file(path)) for name, path in entries)


def _format(patient: Patient) -> str:
    packed = any(name.endswith(".weight_scale_2") for name in patient.parts)
    return "hf-nvfp4" if packed else "hf-bf16"
