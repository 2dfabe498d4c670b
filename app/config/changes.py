"""What a reload changes: the keys that differ between two configurations, and those that need a restart. Pure."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from app.config.config import Config

Key = tuple[str, ...]
"""The path of a key: ("models", "annie", "timeouts", "idle")."""

RESTART: Final[tuple[Key, ...]] = (
    ("gateway", "listen"), ("gateway", "admin"), ("gateway", "state"),  # bound, locked and opened at the start
    ("gateway", "max_connections"), ("gateway", "drain_seconds"), ("gateway", "lame_duck"),  # of the listeners
    ("models", "*", "live"), ("models", "*", "fallback"), ("models", "*", "kind"),  # which engines run
    ("models", "*"), ("engines", "*"),  # one that went
    ("engines", "*", "*"),  # of an engine that runs
    ("shadow", "*"), ("telemetry", "*"),  # opened at the start
)  # fmt: skip
"""Patterns of keys that hold from a start to the next; `*` is any one name. All other keys can be reloaded."""

SECRETS: Final[dict[Key, str]] = {
    ("secrets", "api_keys"): "callers' keys",
    ("secrets", "admin_token"): "the operators' token",
}
"""What they are called where changes are shown: they have several sources, and no key of their own."""

_TABLES: Final = ("engines", "models")
_MISSING: Final = object()


def changed_keys(old: Config, new: Config) -> tuple[Key, ...]:
    """The keys whose values differ, sorted; a model or an engine that came or went is one key."""
    before, after = dict(_flat(old)), dict(_flat(new))
    differ = {
        key for key in before.keys() | after.keys() if before.get(key, _MISSING) != after.get(key, _MISSING)
    }
    whole = {
        (table, name) for table in _TABLES for name in getattr(old, table).keys() ^ getattr(new, table).keys()
    }
    return tuple(sorted(whole | {key for key in differ if key[:2] not in whole}))


def restart_keys(old: Config, new: Config, running: Collection[str]) -> tuple[Key, ...]:
    """The keys whose change has to wait for a restart. A model or an engine may come; an engine may change that is not `running`."""
    came = {
        (table, name) for table in _TABLES for name in getattr(new, table).keys() - getattr(old, table).keys()
    }
    return tuple(
        key
        for key in changed_keys(old, new)
        if any(_fits(key, pattern) for pattern in RESTART)
        and key not in came
        and (len(key) < 3 or key[0] != "engines" or key[1] in running)
    )


def shown(keys: Iterable[Key]) -> list[str]:
    """As they are written in the file: models.annie.timeouts.idle."""
    return [SECRETS.get(key, ".".join(key)) for key in keys]


def _fits(key: Key, pattern: Key) -> bool:
    return len(key) == len(pattern) and all(
        wanted in ("*", name) for name, wanted in zip(key, pattern, strict=True)
    )


def _flat(config: Config) -> Iterator[tuple[Key, Any]]:
    """Every value with its key, down to the sections' values and tables."""
    todo: list[tuple[Key, Any]] = [((), config.model_dump())]
    for path, value in todo:
        if isinstance(value, dict):
            todo += [((*path, name), part) for name, part in value.items()]
        else:
            yield path, value
