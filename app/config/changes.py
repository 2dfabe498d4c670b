"""What a reload changes: the keys that differ between two configurations, and those that need a restart. Pure."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from app.config.config import Config

Key = tuple[str, ...]  # the path of a key: ("models", "annie", "timeouts", "idle")

_MISSING: Final = object()


def changed_keys(old: Config, new: Config, running: Collection[str]) -> tuple[list[str], list[str]]:
    """The keys whose values differ, as models.annie.timeouts.idle, and those of them whose change waits for a restart.

    A model or an engine that came or went is one key. One may come, and an engine may change that is not `running`.
    """
    keys = sorted(_differing((), old.model_dump(), new.model_dump()))
    return [".".join(key) for key in keys], [".".join(key) for key in keys if _waits(key, new, running)]


def _differing(path: Key, old: Any, new: Any) -> Iterator[Key]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() | new.keys():
            yield from _differing((*path, name), old.get(name, _MISSING), new.get(name, _MISSING))
    elif old != new:
        yield path


def _waits(key: Key, new: Config, running: Collection[str]) -> bool:
    match key:
        case ("gateway", name):  # bound, locked, opened at the start, or the listeners'
            return name in ("listen", "admin", "state", "limits", "max_connections", "drain_seconds", "lame_duck")  # fmt: skip
        case ("models" | "engines" as table, name):  # one that went
            return name not in getattr(new, table)
        case ("models", _, name, *_):  # which engines run
            return name in ("live", "fallback", "kind")
        case ("engines", name, *_):
            return name in running
    return key[0] in ("shadow", "telemetry", "log")  # opened at the start
