"""What a reload changes: the keys that differ between two configurations, and those that need a restart. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Final

from pydantic import BaseModel

from app.config.config import Config
from deploy.engine.spec import EngineSpec

Key = tuple[str, ...]
"""The path of a key: ("models", "annie", "timeouts", "idle")."""

RESTART: Final[tuple[Key, ...]] = (
    ("gateway", "listen"), ("gateway", "admin"), ("gateway", "state"),  # bound, locked and opened at the start
    ("gateway", "max_connections"), ("gateway", "read_seconds"), ("gateway", "drain_seconds"),
    ("gateway", "lame_duck"),  # of the listeners
    ("models", "*", "timeouts", "idle"),  # of the listeners, too: how long a caller may read nothing
    ("models", "*", "timeouts", "connect"),  # of the connections to engines
    ("models", "*", "live"), ("models", "*", "fallback"), ("models", "*", "kind"),  # which engines run
    ("models", "*"), ("engines", "*"),  # one that came or went
    ("engines", "*", "*"),
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


def needing_restart(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Those of these keys that cannot change while the gateway runs."""
    return tuple(key for key in keys if any(_fits(key, pattern) for pattern in RESTART))


def restart_keys(old: Config, new: Config) -> tuple[Key, ...]:
    """The keys whose change has to wait for a restart. An engine that comes may come: no model names it yet."""
    came = {("engines", name) for name in new.engines.keys() - old.engines.keys()}
    return tuple(key for key in needing_restart(changed_keys(old, new)) if key not in came)


def shown(keys: Iterable[Key]) -> list[str]:
    """As they are written in the file: models.annie.timeouts.idle."""
    return [SECRETS.get(key, ".".join(key)) for key in keys]


def _fits(key: Key, pattern: Key) -> bool:
    return len(key) == len(pattern) and all(
        wanted in ("*", name) for name, wanted in zip(key, pattern, strict=True)
    )


def _flat(value: Any, path: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every value with its key."""
    if isinstance(value, BaseModel):
        names: Iterable[str] = type(value).model_fields
        parts = {name: getattr(value, name) for name in names}
    elif isinstance(value, EngineSpec):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
    elif len(path) == 1 and path[0] in _TABLES:
        parts = value
    else:
        yield path, value
        return
    for name, part in parts.items():
        yield from _flat(part, (*path, name))
