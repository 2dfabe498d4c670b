"""Checks that engines are replicas: all keys that a report states about an engine and its weights are equal. Pure."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from deploy.engine.spec import EngineSpec

OWN: Final = frozenset({"name", "url", "gpu", "key_file", "ca_file"})  # the keys that may differ


def replicas_fault(specs: Sequence[EngineSpec]) -> str | None:
    """Why these engines are not replicas of the first; None: they are."""
    first, names = specs[0], [spec.name for spec in specs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"{twice!r} is named twice"
    for other in specs[1:]:
        keys = [it.name for it in fields(EngineSpec) if getattr(first, it.name) != getattr(other, it.name)]
        if differ := ", ".join(key for key in keys if key not in OWN):
            why = f"they differ in {differ}; one report is about all replicas of a model"
            return f"{other.name!r} is no replica of {first.name!r}: {why}"
    if len(specs) > 1 and first.artefact is None:
        return f"{first.name!r} has no artefact, so that its weights cannot be compared"
    return None
