"""What engines must have in common to be replicas: all that a report states about an engine and its weights."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from deploy.engine.spec import EngineSpec
from gates.artefact.artefact import folder_of, load
from gates.contracts.errors import ManifestError

COMMON: Final = tuple(
    field.name
    for field in fields(EngineSpec)
    if field.name not in ("name", "url", "gpu", "artefact", "key_file", "ca_file")
)
"""The keys that must be equal. Artefacts may lie apart, but their weights must be the same."""


def replicas_fault(specs: Sequence[EngineSpec]) -> str | None:
    """Why these engines are not replicas of the first; None: they are. Reads manifests where artefacts lie apart."""
    names = [spec.name for spec in specs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"{twice!r} is named twice"
    return next((why for other in specs[1:] if (why := _difference(specs[0], other))), None)


def _difference(first: EngineSpec, other: EngineSpec) -> str | None:
    for key in COMMON:
        if getattr(first, key) != getattr(other, key):
            return (
                f"{other.name!r} is no replica of {first.name!r}: its {key} is {_shown(getattr(other, key))}, and that of "
                f"{first.name!r} {_shown(getattr(first, key))}; one report is about all replicas of a model"
            )
    if first.artefact == other.artefact and first.artefact is not None:
        return None
    ours, theirs = _root(first.artefact), _root(other.artefact)
    if first.artefact is None or other.artefact is None or ours is None or theirs is None:
        bad = first if ours is None else other
        return f"{bad.name!r} has no weights with a valid artefact.json, so that they cannot be compared"
    if ours != theirs:
        return f"{other.name!r} has other weights than {first.name!r}: {theirs:.19} and not {ours:.19}"
    suffixes = first.artefact.suffix, other.artefact.suffix
    if first.artefact.name != other.artefact.name and ".gguf" in suffixes:
        return f"{other.name!r} serves {other.artefact.name}, and {first.name!r} {first.artefact.name}"
    return None


def _root(artefact: Path | None) -> str | None:
    try:
        return None if artefact is None else load(folder_of(artefact)).root
    except (ManifestError, OSError):
        return None


def _shown(value: object) -> str:
    return "not set" if value in (None, ()) else f"{value!r:.100}"
