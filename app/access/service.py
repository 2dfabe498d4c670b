"""Callers' keys and operators of a running gateway: read from the registry, replaced atomically, metered.

Usage is written every FLUSH_SECONDS, in one transaction for all keys, off the path of requests; a
gateway that is killed loses the usage of that time at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from app.access.accounts import DAY, Accounts, unix_now
from app.access.keys import KeyRing, digest, read_admin_token
from app.access.records import ADMIN, Kind
from app.access.roles import Role
from app.config.config import Config
from app.errors.tree import StateUnavailable, Unauthorized
from app.registry.registry import Registry, RegistryReader
from app.registry.values import KnownKey, KnownOperator, Meter
from deploy.core.tasks import supervise

FLUSH_SECONDS = 2.0

T = TypeVar("T")


class RegistryRunner(Protocol):
    """Runs work on the registry, one after another on its own thread; results come in that order. Raises NotStarted, StateUnavailable."""

    def __call__(self, work: Callable[[Registry], T]) -> Awaitable[T]: ...


class AccessRecords(NamedTuple):
    """All that the registry holds of keys and operators, the revoked ones too."""

    keys: tuple[KnownKey, ...] = ()
    usages: Mapping[str, Meter] = {}
    operators: tuple[KnownOperator, ...] = ()


def read(reader: RegistryReader) -> AccessRecords:
    """Everything, at one time. Raises StorageFailed."""
    keys, operators = reader.all(KnownKey, order="name"), reader.all(KnownOperator, order="name")
    return AccessRecords(keys, reader.usages(), operators)


class AccessService:
    """Keys, operators and accounts of one gateway.

    `callers` and `operators` hold the keys of the two listeners, `roles` the operators' roles by name.
    """

    def __init__(self, config: Config, admin_token: str, do: RegistryRunner) -> None:
        self._do = do
        self._changed: Callable[[Config], None] = lambda config: None
        self._flusher: asyncio.Task[None] | None = None
        self.accounts = Accounts()
        self.take(config, admin_token, AccessRecords())

    def on_change(self, changed: Callable[[Config], None]) -> None:
        """Register a callback, which is called now and after each change of the configuration or the keys."""
        self._changed = changed
        changed(self._config)

    async def start(self) -> None:
        """Read the registry, and start to write usage to it. Raises NotStarted, StateUnavailable."""
        await self.refresh()
        self._flusher = supervise(self._flush_for_ever, "usage")

    async def stop(self) -> None:
        """Write the usage. Idempotent."""
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.wait([self._flusher])
            self._flusher = None
            await self.flush()

    async def refresh(self) -> None:
        """Read keys and operators again."""
        self.take(self._config, self._admin_token, await self._do(read))

    def token_for(self, config: Config) -> str:
        """The admin's token by this configuration; the present one if its file is missing. Reads a file."""
        return read_admin_token(config.secrets.admin_token, config.state_dir) or self._admin_token

    def take(self, config: Config, admin_token: str, found: AccessRecords) -> None:
        """Replace keys, operators and the admin's token in one step."""
        self._config, self._admin_token, self._records = config, admin_token, found
        now, self._old_secret_ends, digests = unix_now(), inf, dict[bytes, str]()
        active = [key for key in found.keys if key.revoked is None]
        for key in active:
            digests[bytes.fromhex(key.digest)] = key.name
            if key.old_digest and key.old_until:
                end = datetime.fromisoformat(key.old_until).timestamp()
                if end > now:
                    digests[bytes.fromhex(key.old_digest)] = key.name
                    self._old_secret_ends = min(self._old_secret_ends, end)
        configured = config.secrets.api_keys
        # As the ring names them.
        self._configured = [
            KnownKey(name=f"key-{number}", digest="", created="") for number in range(1, len(configured) + 1)
        ]
        self.accounts.take((*self._configured, *active), found.usages)
        operators = [one for one in found.operators if one.revoked is None]
        tokens = {bytes.fromhex(one.digest): one.name for one in operators} | {digest(admin_token): ADMIN}
        closed = bool(found.keys) or not config.listen.is_loopback
        self.callers, self.operators = KeyRing(configured, digests, closed), KeyRing((), tokens)
        self.roles = {one.name: Role[one.role.upper()] for one in operators} | {ADMIN: Role.ADMINISTER}
        self._changed(config)

    def check(self, authorization: str) -> str | None:
        """The operator whose token this header has now. Raises Unauthorized: none any more."""
        return self.operators.check(authorization)

    def role(self, operator: str) -> Role:
        """The operator's role. Raises Unauthorized: revoked since the request came."""
        if (role := self.roles.get(operator)) is None:
            raise Unauthorized("this key is not known here")
        return role

    async def change(self, kind: Kind, name: str, change: Callable[[Registry], str | None]) -> dict[str, Any]:
        """Change a key or operator by a function of `records`; its view, with its new secret, if it has one,
        under "key" or "token".
        """
        secret, found = await self._do(lambda registry: (change(registry), read(registry)))
        self.take(self._config, self._admin_token, found)
        view = next(one for one in self.listed(kind) if one["name"] == name)
        return {**view, "key" if kind == "key" else "token": secret} if secret else view

    async def flush(self) -> None:
        """Write the usage since the last time. What cannot be written is retried the next time."""
        changed = [one for one in self.accounts.known.values() if one.changed and one.created]
        if not changed:
            return
        meters = {account.name: account.meter for account in changed}
        for account in changed:
            account.changed = False
        try:
            await self._do(lambda registry: registry.write_usage(meters))
        except StateUnavailable:  # counted in the metrics
            for account in changed:
                account.changed = True

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            if unix_now() >= self._old_secret_ends:
                self.take(self._config, self._admin_token, self._records)
            await self.flush()

    def listed(self, kind: Kind) -> list[dict[str, Any]]:
        """All keys, of the configuration, then those of the state folder; or all operators as they see each other."""
        if kind == "key":
            return [self._view(key) for key in (*self._configured, *self._records.keys)]
        names = ("name", "role", "created", "revoked")
        admin = {"name": ADMIN, "role": str(Role.ADMINISTER), "created": None, "revoked": None}
        return [admin, *({name: getattr(one, name) for name in names} for one in self._records.operators)]

    def _view(self, key: KnownKey) -> dict[str, Any]:
        """A key as operators see it; never its secret or its digest. One of the configuration is not metered over a restart."""
        account = self.accounts.known.get(key.name) if key.revoked is None else None
        meter = account.meter if account else self._records.usages.get(key.name, Meter())
        used: dict[str, int | None] = {"today": None, "total": None}
        if key.created:
            today = meter.today if meter.day >= int(unix_now() // DAY) else 0
            used = {"today": today, "total": meter.total}
        return {
            "name": key.name,
            "source": "state" if key.created else "configuration",
            "limits": asdict(key.limits),
            "used": {**used, "in_flight": account.in_flight if account else 0},
            "created": key.created or None,
            "revoked": key.revoked,
            "old_secret_until": key.old_until,
        }
