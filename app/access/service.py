"""Callers' keys and operators of a running gateway: read from the registry, replaced atomically, metered.

Usage is written every FLUSH_SECONDS, in one transaction for all keys, off the path of requests; a
gateway that is killed loses the usage of that time at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from app.access.accounts import DAY, Accounts, unix_now
from app.access.keys import KeyRing, digest, read_admin_token
from app.access.records import ADMIN, Kind
from app.access.roles import Role
from app.config.config import Config
from app.errors.tree import StateUnavailable, Unauthorized
from app.registry.registry import Registry, RegistryReader
from app.registry.values import KnownKey, KnownOperator, Meter, timestamp
from deploy.core.tasks import supervise

FLUSH_SECONDS = 2.0
NEVER = "9999"
"""Later than any time."""

RegistryRunner = Callable[[Callable[[Registry], Any]], Awaitable[Any]]
"""Runs work on the registry, one after another on its own thread; results come in that order. Raises StateUnavailable."""


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

    `callers` and `operators` hold the keys of the two listeners, `roles` the operators' roles by name. `shared`:
    `app.access.shared.SharedLimits`, where several gateways count together.
    """

    def __init__(self, config: Config, admin_token: str, do: RegistryRunner, shared: Any = None) -> None:
        self._do, self._shared = do, shared
        self._changed: Callable[[Config], None] = lambda config: None
        self._flusher: asyncio.Task[None] | None = None
        self._written: dict[str, Meter] = {}
        self.accounts = Accounts(shared.account) if shared else Accounts()
        self.take(config, admin_token, AccessRecords())

    def on_change(self, changed: Callable[[Config], None]) -> None:
        """Register a callback, which is called now and after each change of the configuration or the keys."""
        self._changed = changed
        changed(self._config)

    async def start(self) -> None:
        """Read the registry, and start to write usage to it. Raises StateUnavailable."""
        await self.refresh()
        if self._shared:
            await self._shared.start()
        self._flusher = supervise(self._flush_for_ever, "usage")

    async def stop(self) -> None:
        """Write the usage. Idempotent."""
        if self._shared:
            await self._shared.stop()
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
        """Replace keys, operators and the admin's token in one step. Those of the configuration have no time of creation."""
        self._config, self._admin_token, self._records = config, admin_token, found
        self._keys = [
            KnownKey(name=f"key-{number}", digest=digest(key), created="")
            for number, key in enumerate(config.secrets.api_keys, 1)
        ] + [*found.keys]
        token, role = digest(admin_token), str(Role.ADMINISTER)
        self._operators = [KnownOperator(name=ADMIN, digest=token, role=role, created=""), *found.operators]
        keys = [key for key in self._keys if key.revoked is None]
        operators = [one for one in self._operators if one.revoked is None]
        self.accounts.take(keys, found.usages)
        secrets = [(key.digest, key.name, NEVER) for key in keys]
        secrets += [
            (key.old_digest, key.name, key.old_until) for key in keys if key.old_digest and key.old_until
        ]
        valid = [one for one in secrets if one[2] > _now()]
        self._old_secret_ends = min((until for *_, until in valid), default=NEVER)
        named = {secret: name for secret, name, _ in valid}
        self.callers = KeyRing(named, closed=bool(found.keys) or not config.listen.is_loopback)
        self.operators = KeyRing({one.digest: one.name for one in operators})
        self.roles = {one.name: Role[one.role.upper()] for one in operators}
        self._changed(config)

    def check(self, authorization: str) -> str | None:
        """The operator whose token this header has now. Raises Unauthorized: none any more."""
        return self.operators.check(authorization)

    def role(self, operator: str) -> Role:
        """The operator's role. Raises Unauthorized: revoked since the request came."""
        if (role := self.roles.get(operator)) is None:
            raise Unauthorized("this key is not known here")
        return role

    async def change(
        self, kind: Kind, name: str, actor: str, change: Callable[..., str | None]
    ) -> dict[str, Any]:
        """Change a key or operator by a function of `records`; its view, with its new secret, if it has one,
        under "key" or "token".
        """
        secret, found = await self._do(lambda registry: (change(registry, kind, name, actor), read(registry)))
        self.take(self._config, self._admin_token, found)
        view = next(one for one in self.listed(kind) if one["name"] == name)
        return {**view, "key" if kind == "key" else "token": secret} if secret else view

    async def flush(self) -> None:
        """Write the usage since the last time. What cannot be written is retried the next time."""
        stored = [account for account in self.accounts.known.values() if account.created]
        meters = {one.name: one.meter for one in stored if one.meter != self._written.get(one.name)}
        if meters:
            with suppress(StateUnavailable):  # counted in the metrics
                await self._do(lambda registry: registry.write_usage(meters))
                self._written |= meters

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            if _now() >= self._old_secret_ends:
                self.take(self._config, self._admin_token, self._records)
            await self.flush()

    def listed(self, kind: Kind) -> list[dict[str, Any]]:
        """All keys or operators, as operators see them, those of the configuration first: never a secret or a digest.

        The use of a configured key counts from the gateway's start.
        """
        rows: Sequence[KnownKey | KnownOperator] = self._keys if kind == "key" else self._operators
        return [self._view(row) for row in rows]

    def _view(self, row: KnownKey | KnownOperator) -> dict[str, Any]:
        shared = {"name": row.name, "created": row.created or None, "revoked": row.revoked}
        if isinstance(row, KnownOperator):
            return {**shared, "role": row.role}
        account = self.accounts.known.get(row.name) if row.revoked is None else None
        meter = account.meter if account else self._records.usages.get(row.name, Meter())
        today = meter.today if meter.day >= int(unix_now() // DAY) else 0
        used = {"today": today, "total": meter.total, "in_flight": account.in_flight if account else 0}
        return {**shared, "limits": asdict(row.limits), "used": used, "old_secret_until": row.old_until}


def _now() -> str:
    return timestamp(datetime.fromtimestamp(unix_now(), UTC))
