"""Facts about a configuration and the files around it: engines' tables and the state folder."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import ValidationError

from deploy.core.errors import PinError
from deploy.doctor.collectors.host import text_of
from deploy.doctor.evidence import EngineFacts
from deploy.images.pins import lock_path, read_lock
from gates.decode.decoder import convert


def tables(path: Path) -> Mapping[str, Any]:
    """The tables of a TOML file; {} if it is not TOML, which `app.config` reports."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def engines(found: Mapping[str, Any], base: Path) -> dict[str, EngineFacts]:
    """The `[engines]` tables, valid or not: one with an unpinned image would not load."""
    listed = found.get("engines")
    if not isinstance(listed, dict):
        return {}
    try:
        pins = read_lock(lock_path(base))
    except PinError:
        pins = {}
    return {name: _engine(table, base, pins) for name, table in listed.items() if isinstance(table, dict)}


def _engine(table: Mapping[str, Any], base: Path, pins: Mapping[str, str]) -> EngineFacts:
    """A table as far as its values have the right types: `config.schema` says what is wrong with the others."""
    try:
        found: EngineFacts = convert(table, EngineFacts)
    except ValidationError:
        found = EngineFacts(driver=str(table.get("driver", "")), dialect=str(table.get("dialect", "")))
    artefact = os.path.abspath(base / os.path.expanduser(found.artefact)) if found.artefact else None
    return replace(found, pin=pins.get(found.image or ""), artefact=artefact)


def together(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The engines that the models use: live ones and their fallbacks run at the same time."""
    models = found.get("models")
    names: list[str] = []
    for table in models.values() if isinstance(models, dict) else ():
        if isinstance(table, dict):
            live, fallback = table.get("live"), table.get("fallback")
            names += map(str, live if isinstance(live, list) else (live,))
            names += map(str, fallback if isinstance(fallback, list) else ())
    return tuple(dict.fromkeys(names))


# -------------------------------------------------------------------------------------- the state folder


def filesystem(folder: Path, mounts: str | None = None) -> str | None:
    """The type of the filesystem that a folder is, or would be, on; `mounts` as in /proc/mounts."""
    text = mounts if mounts is not None else text_of(Path("/proc/mounts"))
    if text is None:
        return None
    rows = [line.split() for line in text.splitlines()]
    points = {row[1].replace("\\040", " "): row[2] for row in rows if len(row) >= 3}
    where = folder.resolve()
    return next((points[str(p)] for p in (where, *where.parents) if str(p) in points), None)
