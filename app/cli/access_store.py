"""What `manners key` and `manners operator` do: who may call, and who may operate.

They ask the running gateway, which takes a change at once. Where none runs on this state folder (its lock is free),
they write to the folder themselves, and the next start reads it. A secret is printed once, alone on stdout.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, Protocol

from app.access import records
from app.access.clock import unix_now
from app.access.roles import Role
from app.cli.admin_client import AdminClient
from app.cli.operating import client_for, exit_code
from app.cli.terminal import show_rows
from app.config.config import Config, ConfigError, load
from app.promotion.repository import FILE
from app.registry.errors import RegistryLocked
from app.registry.registry import Registry
from app.registry.values import KeyLimits, Meter

LIMITS = tuple(limit.name for limit in fields(KeyLimits))
SECRETS = {"keys": "key", "operators": "token"}
"""Where the answer to `add` holds the secret."""


class AccessStore(Protocol):
    """Where keys and operators are changed: a running gateway, or the state folder. `kind`: keys, operators."""

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """All of them."""

    def add(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Add one; the view, with its secret."""

    def limit(self, name: str, changes: dict[str, int | None]) -> dict[str, Any]:
        """Change limits of a key; None takes one away. The view."""

    def rotate(self, name: str, overlap: int) -> dict[str, Any]:
        """Give a key another secret; the view, with the secret."""

    def revoke(self, kind: str, name: str) -> dict[str, Any]:
        """Revoke one; the view."""


def _limits(args: argparse.Namespace) -> dict[str, int | None]:
    """The limits that were given; 0 means none."""
    given = {limit: getattr(args, limit) for limit in LIMITS}
    return {limit: value or None for limit, value in given.items() if value is not None}


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    return exit_code(lambda: _run(args), args)


def _run(args: argparse.Namespace) -> int:
    if args.admin is None:
        config = load(args.config)
        try:
            config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            registry = Registry(config.state_dir / FILE)
        except RegistryLocked:
            pass  # a gateway runs: it is asked
        except OSError as error:
            raise ConfigError(f"gateway.state: {config.state_dir}: {error.strerror}") from None
        else:
            with registry:
                return VERBS[args.verb](_StateFolder(registry, config), args)
    client: AdminClient = client_for(args)
    return VERBS[args.verb](client, args)


class _StateFolder:
    """The registry of a gateway that does not run."""

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
        """By whoever may write the state folder: that is the admin."""
        if kind == "operators":
            secret = records.add_operator(self._registry, body["name"], body["role"], records.ADMIN)
        else:
            limits = KeyLimits(**{limit: body.get(limit) for limit in LIMITS})
            secret = records.add_key(self._registry, body["name"], limits, records.ADMIN)
        return {**self._shown(kind, body["name"]), SECRETS[kind]: secret}

    def limit(self, name: str, changes: dict[str, int | None]) -> dict[str, Any]:
        records.limit_key(self._registry, name, changes, records.ADMIN)
        return self._shown("keys", name)

    def rotate(self, name: str, overlap: int) -> dict[str, Any]:
        secret = records.rotate_key(self._registry, name, overlap, records.ADMIN)
        return {**self._shown("keys", name), SECRETS["keys"]: secret}

    def revoke(self, kind: str, name: str) -> dict[str, Any]:
        (records.revoke_operator if kind == "operators" else records.revoke_key)(
            self._registry, name, records.ADMIN
        )
        return self._shown(kind, name)

    def _shown(self, kind: str, name: str) -> dict[str, Any]:
        return next(one for one in self.listed(kind) if one["name"] == name)


def _add(store: AccessStore, args: argparse.Namespace) -> int:
    if args.kind == "keys":
        body = {"name": args.name, **_limits(args)}
    else:
        body = {"name": args.name, "role": args.role}
    return _tell_secret(store.add(args.kind, body), args)


def _rotate(store: AccessStore, args: argparse.Namespace) -> int:
    said = store.rotate(args.name, args.overlap)
    if not args.json:
        print(f"The old secret works until {said['old_secret_until']}.", file=sys.stderr)
    return _tell_secret(said, args)


def _tell_secret(said: dict[str, Any], args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps(said, indent=1))
        return 0
    print(f"The secret of {args.name}; it is not shown again:", file=sys.stderr)
    print(said[SECRETS[args.kind]])
    return 0


def _limit(store: AccessStore, args: argparse.Namespace) -> int:
    said = store.limit(args.name, _limits(args))
    limits = [f"{limit} {_number(value)}" for limit, value in said["limits"].items()]
    print(json.dumps(said, indent=1) if args.json else f"{args.name}: {', '.join(limits)}")
    return 0


def _revoke(store: AccessStore, args: argparse.Namespace) -> int:
    said = store.revoke(args.kind, args.name)
    print(json.dumps(said, indent=1) if args.json else f"{args.name} is revoked")
    return 0


def _list(store: AccessStore, args: argparse.Namespace) -> int:
    found = store.listed(args.kind)
    if args.json:
        print(json.dumps({args.kind: found}, indent=1))
    elif args.kind == "operators":
        show_rows(
            ("operator", "role", "since", "revoked"),
            [[one["name"], one["role"], _day(one["created"]), _day(one["revoked"])] for one in found],
        )
    else:
        show_rows(
            ("key", *LIMITS, "used today", "in all", "since", "revoked"), [_key_row(one) for one in found]
        )
    return 0


VERBS: Final[Mapping[str, Callable[[AccessStore, argparse.Namespace], int]]] = {
    "add": _add,
    "limit": _limit,
    "rotate": _rotate,
    "revoke": _revoke,
    "list": _list,
}


def _key_row(key: dict[str, Any]) -> list[str]:
    limits = [_number(key["limits"][limit]) for limit in LIMITS]
    used = [_number(key["used"][name]) for name in ("today", "total")]
    since = _day(key["created"]) or key["source"]
    return [key["name"], *limits, *used, since, _day(key["revoked"])]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _day(at: str | None) -> str:
    return at[:10] if at else ""
