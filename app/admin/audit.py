"""The audit as operators read it: a page of its events, and whether the whole chain is sound.

Hashing every event again may take seconds. One check runs at a time, for all who ask meanwhile, and it leaves the registry to
others between its parts.
"""

import asyncio
from typing import Any, Final

from app.access.service import RegistryRunner
from app.promotion.views import event_view
from app.registry import chain
from app.registry.errors import ChainBroken
from app.registry.registry import Registry
from app.registry.values import Head

PART: Final = 500
"""Events hashed in one go, in some 15 ms."""


class Audit:
    """Of one gateway."""

    def __init__(self, do: RegistryRunner) -> None:
        self._do = do
        self._checking: asyncio.Future[dict[str, Any]] | None = None

    async def page(self, after: int, limit: int, newest: bool) -> dict[str, Any]:
        """At most `limit` events behind `after`, or the `newest` of them; the head, and the chain's state.

        Raises NotStarted, StateUnavailable.
        """
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(self._check())
            self._checking.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # marked as retrieved
        state = await asyncio.shield(self._checking)
        shown = await self._do(lambda registry: _page(registry, after, limit, newest))
        return {**shown, "chain": state}

    async def _check(self) -> dict[str, Any]:
        before, head = None, chain.GENESIS
        try:
            while head != before:
                before, head = head, await self._next(head)
        except ChainBroken as broken:
            return {"ok": False, "seq": broken.seq, "why": broken.why}
        return {"ok": True}

    async def _next(self, before: Head) -> Head:
        return await self._do(lambda registry: registry.verify_chain(before, PART))


def _page(registry: Registry, after: int, limit: int, newest: bool) -> dict[str, Any]:
    head = registry.head()
    if newest:
        after = max(after, head.seq - limit)
    events = [event_view(event) for event in registry.events(after=after, limit=limit)]
    return {"events": events, "head": {"seq": head.seq, "hash": head.hash}}
