"""Keys and operators of a gateway that does not run: the state folder's registry, which the next start reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from app.access import records
from app.access.clock import unix_now
from app.access.roles import Role
from app.config.config import Config, ConfigError, load
from app.promotion.repository import FILE
from app.registry.errors import RegistryLocked
from app.registry.registry import Registry
from app.registry.values import KeyLimits, Meter

_LIMITS = tuple(limit.name for limit in fields(KeyLimits))
_SECRETS = {"keys": "key", "operators": "token"}
"""Where the answer to `add` holds the secret, as in the gateway's."""


@contextmanager
def state_folder(path: Path | None) -> Iterator["StateFolder | None"]:
    """The state folder of this configuration; None: a gateway runs on it. Raises ConfigError."""
    config = load(path)
    try:
        config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        registry = Registry(config.state_dir / FILE)
    except RegistryLocked:
        yield None
    except OSError as error:
        raise ConfigError(f"gateway.state: {config.state_dir}: {error.strerror}") from None
    else:
        with registry:
            yield StateFolder(registry, config)


class StateFolder:
    """The registry of a gateway that does not run, with the methods of `AdminClient` for keys and operators."""

    def __init__(self, registry: Registry, config: Config) -> None:
        self._registry = registry
        self._configured = len(config.secrets.api_keys)

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """As the gateway would show them."""
        found = records.read(self._registry)
        if kind == "operators":
            admin = {"name": records.ADMIN, "role": str(Role.ADMINISTER), "created": None, "revoked": None}
            return [admin, *map(records.operator_view, found.operators)]
        configured = [records.configured_key_view(f"key-{n}", 0) for n in range(1, self._configured + 1)]
        now = unix_now()
        return configured + [
            records.key_view(key, found.usages.get(key.name, Meter()), 0, now) for key in found.keys
        ]

    def add(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Add one, in the name of `admin`: nobody else can write the state folder."""
        if kind == "operators":
            secret = records.add_operator(self._registry, body["name"], body["role"], records.ADMIN)
        else:
            limits = KeyLimits(**{limit: body.get(limit) for limit in _LIMITS})
            secret = records.add_key(self._registry, body["name"], limits, records.ADMIN)
        return {**self._shown(kind, body["name"]), _SECRETS[kind]: secret}

    def limit(self, name: str, changes: dict[str, int | None]) -> dict[str, Any]:
        records.limit_key(self._registry, name, changes, records.ADMIN)
        return self._shown("keys", name)

    def rotate(self, name: str, overlap: int) -> dict[str, Any]:
        secret = records.rotate_key(self._registry, name, overlap, records.ADMIN)
        return {**self._shown("keys", name), _SECRETS["keys"]: secret}

    def revoke(self, kind: str, name: str) -> dict[str, Any]:
        (records.revoke_operator if kind == "operators" else records.revoke_key)(
            self._registry, name, records.ADMIN
        )
        return self._shown(kind, name)

    def _shown(self, kind: str, name: str) -> dict[str, Any]:
        return next(one for one in self.listed(kind) if one["name"] == name)
