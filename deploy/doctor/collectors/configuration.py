"""Facts about a configuration and the files around it: engines' tables and the state folder."""

import fcntl
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deploy.core.errors import PinError
from deploy.doctor.collectors.commands import text_of
from deploy.doctor.evidence import EngineFacts
from deploy.images.pins import lock_path, read_lock


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
    texts = {key: value for key, value in table.items() if isinstance(value, str)}
    artefact, args, env = texts.get("artefact"), table.get("args"), table.get("env")
    words = table.get("command")
    command = tuple(map(str, words)) if isinstance(words, list) else ()
    return EngineFacts(
        dialect=texts.get("dialect", ""),
        driver=texts.get("driver", ""),
        image=texts.get("image"),
        pin=pins.get(texts.get("image", "")),
        gpu=texts.get("gpu"),
        url=texts.get("url"),
        args=tuple(map(str, args)) if isinstance(args, list) else (),
        command=command,
        env={name: value for name, value in env.items() if isinstance(value, str)}
        if isinstance(env, dict)
        else {},
        executable=_is_executable(command[0], base) if command else None,
        artefact=os.path.abspath(base / os.path.expanduser(artefact)) if artefact else None,
    )


def _is_executable(program: str, base: Path) -> bool:
    path = os.path.expanduser(program)
    return shutil.which(base / path if "/" in path else path) is not None


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


def locks(folder: Path) -> bool | None:
    """Whether flock and fsync work in a folder, tried with a temporary file. None: the folder is not writable."""
    there = next((p for p in (folder, *folder.parents) if p.is_dir()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.fsync(file.fileno())
            except OSError:
                return False
            return True
    except OSError:
        return None


def modes(paths: Iterable[Path]) -> dict[str, int]:
    """The permission bits of those files that exist."""
    found = {}
    for path in paths:
        try:
            found[str(path)] = path.stat().st_mode & 0o777
        except OSError:
            continue
    return found
