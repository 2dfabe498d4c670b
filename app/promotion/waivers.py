"""Overrides in the registry: granted, withdrawn, and what they waive when the door is asked."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from app.errors.tree import BadField, UnknownThing
from app.promotion import override
from app.promotion.override import VERB, WITHDRAWN, Override, OverrideError
from app.promotion.plan import Plan
from app.promotion.shelf import Shelf
from app.promotion.wishes import now
from app.registry.reader import Reader
from app.registry.registry import Registry
from app.registry.values import Entry


def active(reader: Reader) -> dict[int, Override]:
    """Those that hold now, by the number of their event."""
    at = datetime.now(UTC)
    return override.active(reader.events_of(VERB, WITHDRAWN, since=override.since(at)), at)


def waived(reader: Reader, plan: Plan) -> frozenset[str]:
    """The refusals that are waived for this plan's model and candidate now."""
    found = active(reader).values()
    return override.waived(found, model=plan.model, engine=plan.candidate, now=datetime.now(UTC))


def grant(registry: Registry, shelf: Shelf, by: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Write it down; what is shown of it. Raises UnknownEngine, BadField."""
    try:
        granted = override.grant(
            model=asked["model"],
            engine=shelf.digest(asked["engine"]),
            waives=asked["waives"],
            reason=asked["reason"],
            by=by,
            now=datetime.now(UTC),
            hours=asked["hours"],
        )
    except OverrideError as error:
        raise BadField(str(error), param=str(error).partition(":")[0]) from None
    entry = Entry(at=now(), actor=by, verb=VERB, subject=granted.model, detail=override.detail(granted))
    return shown(registry.note(entry).seq, granted, shelf)


def withdraw(registry: Registry, shelf: Shelf, by: str, seq: int) -> dict[str, Any]:
    """Let it hold no more; what it was. Raises UnknownThing."""
    known = active(registry).get(seq)
    if known is None:
        raise UnknownThing(f"no override {seq} holds now", "override_not_found")
    registry.note(Entry(at=now(), actor=by, verb=WITHDRAWN, subject=known.model, detail={"granted": seq}))
    return shown(seq, known, shelf)


def shown(seq: int, known: Override, shelf: Shelf) -> dict[str, Any]:
    """An override as operators see it; `id` is the number of its event in the audit."""
    return {"id": seq, **override.detail(known), "engine": shelf.name(known.engine)}
