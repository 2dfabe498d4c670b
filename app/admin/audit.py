"""The audit as operators read it: a page of its events, and whether the whole chain is sound."""

from functools import partial
from typing import Any, Final

from app.access.service import RegistryRunner
from app.promotion.views import event_view
from app.registry import chain
from app.registry.errors import ChainBroken
from app.registry.registry import Registry

PART: Final = 500
"""Events that are hashed in one go, in some 15 ms: a promotion's step does not wait for the whole chain."""


async def audit_page(do: RegistryRunner, after: int, limit: int, newest: bool) -> dict[str, Any]:
    """At most `limit` events behind `after`, or the `newest` of them; the head, and the chain's state.

    Raises NotStarted, StateUnavailable.
    """
    state: dict[str, Any] = {"ok": True}
    before, head = None, chain.GENESIS
    try:
        while head != before:
            before = head
            head = await do(partial(Registry.verify_chain, before=head, limit=PART))
    except ChainBroken as broken:
        state = {"ok": False, "seq": broken.seq, "why": broken.why}

    def page(registry: Registry) -> dict[str, Any]:
        head = registry.head()
        start = max(after, head.seq - limit) if newest else after
        events = [event_view(event) for event in registry.events(after=start, limit=limit)]
        return {"events": events, "head": {"seq": head.seq, "hash": head.hash}, "chain": state}

    return await do(page)
