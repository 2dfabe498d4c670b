"""What engines must have in common to be replicas: all that a report states about an engine and its weights."""

from collections.abc import Sequence
from dataclasses import fields
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
    ours, theirs = first.name, other.name
    if keys := [key for key in COMMON if getattr(first, key) != getattr(other, key)]:
        why = f"they differ in {', '.join(keys)}; one report is about all replicas of a model"
        return f"{theirs!r} is no replica of {ours!r}: {why}"
    if first.artefact is not None and first.artefact == other.artefact:
        return None
    if (mine := _weights(first)) is None or (its := _weights(other)) is None:
        bad = ours if mine is None else theirs
        return f"{bad!r} has no weights with a valid artefact.json, so that they cannot be compared"
    return None if mine == its else f"{theirs!r} has other weights than {ours!r}: {its} and not {mine}"


def _weights(spec: EngineSpec) -> str | None:
    """The digest of its artefact, and which file of that it serves."""
    if (path := spec.artefact) is None:
        return None
    try:
        root = load(folder_of(path)).root
    except (ManifestError, OSError):
        return None
    return f"{root:.19}{f'/{path.name}' if path.suffix == '.gguf' else ''}"
