"""Callers' keys and operators of a running gateway: read from the registry, replaced atomically, metered.

Usage is written every FLUSH_SECONDS, in one transaction for all keys, off the path of requests; a
gateway that is killed loses the usage of that time at most.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeVar

from app.access import records
from app.access.accounts import Accounts
from app.access.clock import unix_now
from app.access.keys import KeyRing, digest, read_admin_token
from app.access.records import ADMIN, AccessRecords
from app.access.roles import Role
from app.config.config import Config
from app.errors.tree import StateUnavailable, Unauthorized
from app.registry.registry import Registry
from app.registry.values import KnownKey, Meter
from deploy.core.tasks import supervise

FLUSH_SECONDS = 2.0

T = TypeVar("T")


class RegistryRunner(Protocol):
    """Runs work on the registry, on its own thread. Raises NotStarted, StateUnavailable."""

    def __call__(self, work: Callable[[Registry], T]) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Rings:
    """The keys of both listeners, and the operators' roles by name."""

    public: KeyRing
    admin: KeyRing
    roles: dict[str, Role]


class AccessService:
    """Keys, operators and accounts of one gateway."""

    def __init__(
        self,
        config: Config,
        admin_token: str,
        do: RegistryRunner,
        clock: Callable[[], float] = unix_now,
    ) -> None:
        self._config = config
        self._admin_token = admin_token
        self._do = do
        self._clock = clock
        self._records = AccessRecords()
        self._changed: Callable[[Config, Rings], None] = lambda config, rings: None
        self._flusher: asyncio.Task[None] | None = None
        self.accounts = Accounts()
        self.rings = self._apply()

    def on_change(self, changed: Callable[[Config, Rings], None]) -> None:
        """Register a callback, which is called now and after each change of the configuration or the keys."""
        self._changed = changed
        changed(self._config, self.rings)

    # ------------------------------------------------------------------------------- start and end

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
        self.take(self._config, self._admin_token, await self.read())

    async def read(self) -> AccessRecords:
        """The registry's records with the usage that is not written yet. Raises NotStarted, StateUnavailable."""
        return await self._do(records.read)

    def token_for(self, config: Config) -> str:
        """The admin's token by this configuration; the present one if its file is missing. Reads a file."""
        return read_admin_token(config.secrets.admin_token, config.state_dir) or self._admin_token

    def take(self, config: Config, admin_token: str, found: AccessRecords) -> None:
        """Replace keys, operators and the admin's token in one step. Records older than the known ones are ignored."""
        self._config, self._admin_token = config, admin_token
        if found.seq >= self._records.seq:
            self._records = found
        self.rings = self._apply()
        self._changed(config, self.rings)

    def _apply(self) -> Rings:
        found, configured = self._records, self._config.secrets.api_keys
        active = [key for key in found.keys if key.revoked is None]
        self.accounts.take((*self._configured(), *active), found.usages)
        now = self._clock()
        secrets = {key.name: records.secrets_of(key, now) for key in active}
        self._old_secret_ends = min((end for ends in secrets.values() for end in ends.values()), default=inf)
        operators = [one for one in found.operators if one.revoked is None]
        return Rings(
            public=KeyRing(
                configured,
                {secret: name for name, ends in secrets.items() for secret in ends},
                closed=bool(found.keys) or not self._config.listen.is_loopback,
            ),
            admin=KeyRing(
                (),
                {bytes.fromhex(one.digest): one.name for one in operators}
                | {digest(self._admin_token): ADMIN},
            ),
            roles={one.name: Role.named(one.role) for one in operators} | {ADMIN: Role.ADMINISTER},
        )

    def check(self, authorization: str) -> str | None:
        """The operator whose token this header has now. Raises Unauthorized: none any more."""
        return self.rings.admin.check(authorization)

    def role(self, operator: str) -> Role:
        """The operator's role. Raises Unauthorized: revoked since the request came."""
        try:
            return self.rings.roles[operator]
        except KeyError:
            raise Unauthorized("this key is not known here") from None

    # ------------------------------------------------------------------------------------- changes

    async def change(
        self, kind: records.Kind, name: str, change: Callable[[Registry], str | None]
    ) -> dict[str, Any]:
        """Change a key or operator by a function of `records`, even if the operator's client disconnects meanwhile.

        Its view, with its new secret, if it has one, under "key" or "token". Raises StateUnavailable: the registry is older than
        what is known, and would be ignored.
        """
        known = self._records.seq

        def changed(registry: Registry) -> tuple[str | None, AccessRecords]:
            if registry.head().seq < known:
                raise StateUnavailable(
                    "the state folder's database was put back to an older one: restart the gateway"
                )
            return change(registry), records.read(registry)

        secret, found = await self._do(changed)
        self.take(self._config, self._admin_token, found)
        view = next(one for one in self.listed(kind) if one["name"] == name)
        return {**view, "key" if kind == "key" else "token": secret} if secret else view

    # --------------------------------------------------------------------------------------- usage

    async def flush(self) -> None:
        """Write the usage since the last time. What cannot be written is retried the next time."""
        changed = self.accounts.changed()
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
            if self._clock() >= self._old_secret_ends:
                self.take(self._config, self._admin_token, self._records)
            await self.flush()

    # --------------------------------------------------------------------------------------- views

    def listed(self, kind: records.Kind) -> list[dict[str, Any]]:
        """All keys, of the configuration, then those of the state folder; or all operators."""
        if kind == "operator":
            return records.operator_views(self._records.operators)
        return [self._view(key) for key in (*self._configured(), *self._records.keys)]

    def _view(self, key: KnownKey) -> dict[str, Any]:
        account = self.accounts.of(key.name)
        if key.revoked or account.name != key.name:
            return records.key_view(key, self._records.usages.get(key.name, Meter()), 0, self._clock())
        return records.key_view(key, account.meter, account.in_flight, self._clock())

    def _configured(self) -> list[KnownKey]:
        """The keys of the configuration, as its ring names them."""
        count = len(self._config.secrets.api_keys)
        return [KnownKey(name=f"key-{number}", digest="", created="") for number in range(1, count + 1)]
