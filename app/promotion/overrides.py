"""Overrides: an operator waives named refusals for one engine and one model, for at most a day. Pure.

An override is granted by a request of its own, and kept as an entry of the audit. Some refusals cannot be waived:
a revocation, a bad signature, and an artefact or a running engine that is not the one that was judged.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, get_args

import msgspec

from app.errors.tree import UnknownThing
from app.promotion.spec_catalogue import SpecCatalogue
from app.registry.registry import Registry, RegistryReader
from app.registry.values import AuditEntry, AuditEvent, timestamp
from gates.report.statement import format_time, parse_time

VERB: Final = "override.granted"  # a verb of the audit, whose detail is an `Override`
WITHDRAWN: Final = "override.withdrawn"  # its detail is {"granted": seq}

Waivable = Literal[
    "report_missing", "report_stale", "verdict_not_pass", "mismatch_engine", "mismatch_numerics",
    "mismatch_suite", "mismatch_policy", "mismatch_model", "baseline_lineage",
]  # fmt: skip
WAIVABLE: Final = frozenset(get_args(Waivable))


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """`engine` is the digest of its spec; `waives` are codes of refusals; times RFC 3339 in UTC."""

    model: str
    engine: str
    waives: tuple[str, ...]
    reason: str
    by: str
    at: str
    expires: str


def waived_codes(active: Mapping[int, Override], model: str, engine: str) -> frozenset[str]:
    """The refusals that these overrides waive for this model and engine, as `eligibility.check` takes them."""
    held = (one for one in active.values() if (one.model, one.engine) == (model, engine))
    return frozenset(code for one in held for code in one.waives)


def active(reader: RegistryReader, now: datetime) -> dict[int, Override]:
    """The overrides that are active now, by the number of their audit event."""
    told = reader.all(AuditEvent, "verb IN (?, ?)", VERB, WITHDRAWN)  # at once: it reads the whole audit
    withdrawn = {json.loads(event.detail)["granted"] for event in told if event.verb == WITHDRAWN}
    granted = [event for event in told if event.verb == VERB and event.seq not in withdrawn]
    found = {event.seq: msgspec.json.decode(event.detail, type=Override) for event in granted}
    return {seq: one for seq, one in found.items() if parse_time(one.at) <= now < parse_time(one.expires)}


def grant(
    registry: Registry, catalogue: SpecCatalogue, by: str, asked: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Record an override that begins now (`asked` is the checked body of the request); what is shown of it. Raises UnknownThing."""
    granted = Override(
        model=asked["model"],
        engine=catalogue.digest(asked["engine"]),
        waives=tuple(sorted(set(asked["waives"]))),
        reason=" ".join(asked["reason"].split()),
        by=by,
        at=format_time(now),
        expires=format_time(now + timedelta(hours=asked["hours"])),
    )
    entry = AuditEntry(at=timestamp(now), actor=by, verb=VERB, subject=granted.model, detail=asdict(granted))
    return view(registry.note(entry).seq, granted, catalogue)


def withdraw(
    registry: Registry, catalogue: SpecCatalogue, by: str, seq: int, now: datetime
) -> dict[str, Any]:
    """End an override; what it was. Raises UnknownThing."""
    known = active(registry, now).get(seq)
    if known is None:
        raise UnknownThing(f"no override {seq} holds now", "override_not_found")
    detail = {"granted": seq}
    registry.note(AuditEntry(at=timestamp(now), actor=by, verb=WITHDRAWN, subject=known.model, detail=detail))
    return view(seq, known, catalogue)


def view(seq: int, known: Override, catalogue: SpecCatalogue) -> dict[str, Any]:
    """An override as operators see it; `id` is the number of its audit event."""
    return {"id": seq, **asdict(known), "engine": catalogue.name(known.engine)}
