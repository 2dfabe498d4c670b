"""What `manners key` and `manners operator` do: who may call, and who may operate.

They ask the running gateway, which takes a change at once. Where none runs on this state folder (its lock is free),
they write to the folder themselves, and the next start reads it. A secret is printed once, alone on stdout.
"""

import argparse
import json
import sys
from dataclasses import fields
from typing import Any

from app.access import records
from app.access.clock import unix_now
from app.access.roles import Role
from app.cli.admin_client import AdminClient
from app.cli.operating import client_for, run_client
from app.cli.terminal import show_rows
from app.config.config import Config, ConfigError, load
from app.promotion.repository import FILE
from app.registry.errors import RegistryLocked
from app.registry.registry import Registry
from app.registry.values import KeyLimits, Meter

LIMITS = tuple(limit.name for limit in fields(KeyLimits))
SECRETS = {"keys": "key", "operators": "token"}
"""Where the answer to `add` holds the secret."""


def _limits(args: argparse.Namespace) -> dict[str, int | None]:
    """The limits that were given; 0 means none."""
    given = {limit: getattr(args, limit) for limit in LIMITS}
    return {limit: value or None for limit, value in given.items() if value is not None}


def run(args: argparse.Namespace) -> int:
    """Run one command; its exit code."""
    return run_client(lambda: _run(args), args)


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
                return _do(_StateFolder(registry, config), args)
    return _do(client_for(args), args)


def _do(store: "AdminClient | _StateFolder", args: argparse.Namespace) -> int:
    said = _ask(store, args)
    if args.json:
        print(json.dumps(said, indent=1))
        return 0
    match args.verb:
        case "list":
            _show_list(args.kind, said[args.kind])
        case "limit":
            limits = [f"{limit} {_number(value)}" for limit, value in said["limits"].items()]
            print(f"{args.name}: {', '.join(limits)}")
        case "revoke":
            print(f"{args.name} is revoked")
        case _:
            if args.verb == "rotate":
                print(f"The old secret works until {said['old_secret_until']}.", file=sys.stderr)
            print(f"The secret of {args.name}; it is not shown again:", file=sys.stderr)
            print(said[SECRETS[args.kind]])
    return 0


def _ask(store: "AdminClient | _StateFolder", args: argparse.Namespace) -> dict[str, Any]:
    match args.verb:
        case "add":
            more = _limits(args) if args.kind == "keys" else {"role": args.role}
            return store.add(args.kind, {"name": args.name, **more})
        case "limit":
            return store.limit(args.name, _limits(args))
        case "rotate":
            return store.rotate(args.name, args.overlap)
        case "revoke":
            return store.revoke(args.kind, args.name)
        case _:
            return {args.kind: store.listed(args.kind)}


class _StateFolder:
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


def _show_list(kind: str, found: list[dict[str, Any]]) -> None:
    if kind == "operators":
        show_rows(
            ("operator", "role", "since", "revoked"),
            [[one["name"], one["role"], _day(one["created"]), _day(one["revoked"])] for one in found],
        )
    else:
        show_rows(
            ("key", *LIMITS, "used today", "in all", "since", "revoked"), [_key_row(one) for one in found]
        )


def _key_row(key: dict[str, Any]) -> list[str]:
    limits = [_number(key["limits"][limit]) for limit in LIMITS]
    used = [_number(key["used"][name]) for name in ("today", "total")]
    since = _day(key["created"]) or key["source"]
    return [key["name"], *limits, *used, since, _day(key["revoked"])]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _day(at: str | None) -> str:
    return at[:10] if at else ""
