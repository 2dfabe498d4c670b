"""Reload: reads configuration, keys and operators again and applies them atomically, or changes nothing.

Everything that can fail comes first: reading, checking, the audit. Applying does not wait, so that no request sees
a partial change. Requests in progress keep the old configuration.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from app.access.service import AccessService, read
from app.config.changes import Key, changed_keys, restart_keys, shown
from app.config.config import Config, ConfigError
from app.errors.tree import MannersError, Refused
from app.promotion.repository import now
from app.promotion.service import PromotionService
from app.registry.values import AuditEntry
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics


class Reloader:
    """Holds the configuration in force. `read` reads it again; `takers` get the new one, and must not fail."""

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        takers: Iterable[Callable[[Config], None]],
        access: AccessService,
        promotions: PromotionService,
        metrics: Metrics,
        log: Logger,
    ) -> None:
        self.config = config
        self._read = read
        self._takers = tuple(takers)
        self._access = access
        self._promotions = promotions
        self._metrics = metrics
        self._log = log
        self._one_at_a_time = asyncio.Lock()

    async def reload(self, actor: str) -> dict[str, Any]:
        """Read everything again and apply it; returns the changed keys of the configuration.

        Raises:
            Refused: configuration_invalid, or restart_required, with the keys by name. Nothing has changed.
            NotStarted, StateUnavailable: the registry cannot be read. Nothing has changed.
        """
        try:
            async with self._one_at_a_time:
                keys = await self._reload(actor)
        except MannersError as refused:
            self._metrics.count("manners_reloads_total", refused.code)
            self._log.error("reload_refused", operator=actor, code=refused.code, reason=refused.message)
            raise
        self._metrics.count("manners_reloads_total", "ok")
        self._log.info("reloaded", operator=actor, changed=shown(keys))
        return {"changed": shown(keys), "keys": len(self._access.listed("key"))}

    async def _reload(self, actor: str) -> tuple[Key, ...]:
        try:
            config, token = await asyncio.to_thread(self._read_files)
        except ConfigError as error:
            raise Refused(f"{error}; nothing was changed", "configuration_invalid") from None
        keys = changed_keys(self.config, config)
        if restart := restart_keys(self.config, config, self._promotions.engines_in_use()):
            names = ", ".join(shown(restart))
            raise Refused(
                f"a restart is needed for {names}: restart the gateway, or put the file back; nothing was changed",
                "restart_required",
            )
        await self._promotions.prepare(config)
        entry = AuditEntry(
            at=now(),
            actor=actor,
            verb="configuration.reloaded",
            subject="gateway",
            detail={"changed": shown(keys)},
        )
        # Read behind the note, in one piece of work: a change that comes after it is taken after it.
        _, found = await self._promotions.do(lambda registry: (registry.note(entry), read(registry)))
        # Nothing waits and nothing fails from here on.
        for take in self._takers:
            take(config)
        self._access.take(config, token, found)
        self.config = config
        return keys

    def _read_files(self) -> tuple[Config, str]:
        config = self._read()
        try:
            return config, self._access.token_for(config)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"gateway.state: admin.token: {getattr(error, 'strerror', 'not UTF-8 text')}"
            ) from None
