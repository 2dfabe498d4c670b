"""Reload: reads configuration, keys and operators again and applies them atomically, or changes nothing.

Everything that can fail comes first: reading, checking, the audit. Applying does not wait, so that no request sees
a partial change. Requests in progress keep the old configuration.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.access.service import AccessService, read
from app.config.changes import changed_keys
from app.config.config import Config, ConfigError
from app.errors.tree import MannersError, Refused
from app.promotion.repository import now
from app.promotion.service import PromotionService
from app.registry.values import AuditEntry
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics


@dataclass
class Reloader:
    """Holds the configuration in force. `_read` reads it again; `_takers` get the new one, and must not fail."""

    config: Config
    _read: Callable[[], Config]
    _takers: Sequence[Callable[[Config], None]]
    _access: AccessService
    _promotions: PromotionService
    _metrics: Metrics
    _log: Logger
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def reload(self, actor: str) -> dict[str, Any]:
        """Read everything again and apply it; returns the changed keys of the configuration.

        Raises:
            Refused: configuration_invalid, or restart_required, with the keys by name. Nothing has changed.
            StateUnavailable: the gateway cannot read the registry. Nothing has changed.
        """
        try:
            async with self._one_at_a_time:
                keys = await self._reload(actor)
        except MannersError as refused:
            self._metrics.count("manners_reloads_total", refused.code)
            self._log.error("reload_refused", operator=actor, code=refused.code, reason=refused.message)
            raise
        self._metrics.count("manners_reloads_total", "ok")
        self._log.info("reloaded", operator=actor, changed=keys)
        return {"changed": keys, "keys": len(self._access.listed("key"))}

    async def _reload(self, actor: str) -> list[str]:
        try:
            config = await asyncio.to_thread(self._read)
            token = await asyncio.to_thread(self._access.token_for, config)
        except ConfigError as error:
            raise Refused(f"{error}; nothing was changed", "configuration_invalid") from None
        except (OSError, UnicodeDecodeError) as error:
            why = f"gateway.state: admin.token: {getattr(error, 'strerror', 'not UTF-8 text')}"
            raise Refused(f"{why}; nothing was changed", "configuration_invalid") from None
        keys, restart = changed_keys(self.config, config, self._promotions.engines_in_use())
        if restart:
            cure = "restart the gateway, or put the file back; nothing was changed"
            raise Refused(f"a restart is needed for {', '.join(restart)}: {cure}", "restart_required")
        await self._promotions.prepare(config)
        verb, detail = "configuration.reloaded", {"changed": keys}
        entry = AuditEntry(at=now(), actor=actor, verb=verb, subject="gateway", detail=detail)
        # Read behind the note, in one piece of work: a change that comes after it is taken after it.
        _, found = await self._promotions.do(lambda registry: (registry.note(entry), read(registry)))
        # Nothing waits and nothing fails from here on.
        for take in self._takers:
            take(config)
        self._access.take(config, token, found)
        self.config = config
        return keys
