"""An override: an operator brings a candidate in against the door's advice, in their own name. Pure.

It is a verb of its own, never a flag of a promotion: it names the model, the engine, and the very
refusals that it waives; it needs a reason, and runs out within a day. It stands in the audit like
every other change, and is shown for as long as it holds. Some refusals cannot be waived: what was
revoked, what was tampered with, and what is not the artefact or the engine that it says it is.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from app.registry.values import Event
from gates.report.statement import moment, stamp

VERB: Final = "override.granted"
WITHDRAWN: Final = "override.withdrawn"
"""The audit's verbs; the detail of the first is an `Override`, that of the second {"granted": seq}."""

WAIVABLE: Final = frozenset(
    {
        "report_missing", "report_stale", "verdict_not_pass", "mismatch_engine", "mismatch_suite",
        "mismatch_policy", "baseline_lineage",
    }
)  # fmt: skip

LONGEST: Final = timedelta(hours=24)
_LEAST_REASON, _LONGEST_REASON = 10, 500


class OverrideError(ValueError):
    """An override that cannot be granted; says why in one line."""


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

    def holds(self, now: datetime) -> bool:
        """Whether it has begun and not run out at an aware time."""
        return moment(self.at) <= now < moment(self.expires)


def grant(
    *,
    model: str,
    engine: str,
    waives: Collection[str],
    reason: str,
    by: str,
    now: datetime,
    hours: float = 24.0,
) -> Override:
    """An override from now on. Raises OverrideError."""
    if not waives:
        raise OverrideError("waives: name the refusals to waive; a dry run of the promotion says which")
    if hard := sorted(set(waives) - WAIVABLE):
        known = ", ".join(sorted(WAIVABLE))
        raise OverrideError(f"waives: {hard[0]:.40} cannot be waived; what can: {known}")
    reason = " ".join(reason.split())
    if not _LEAST_REASON <= len(reason) <= _LONGEST_REASON:
        raise OverrideError(f"reason: say in {_LEAST_REASON} to {_LONGEST_REASON} characters why")
    if not 0 < hours <= LONGEST / timedelta(hours=1):
        raise OverrideError("hours: more than 0 and at most 24")
    return Override(
        model=model,
        engine=engine,
        waives=tuple(sorted(set(waives))),
        reason=reason,
        by=by,
        at=stamp(now),
        expires=stamp(now + timedelta(hours=hours)),
    )


def active(events: Iterable[Event], now: datetime) -> dict[int, Override]:
    """The overrides of an audit that hold now, by the `seq` of their event; other verbs are passed over.

    The events of the last day are enough: `reader.events_of(VERB, WITHDRAWN, since=since(now))`.
    """
    found: dict[int, Override] = {}
    for event in events:
        if event.verb == VERB:
            found[event.seq] = _read(event)
        elif event.verb == WITHDRAWN:
            found.pop(json.loads(event.detail)["granted"], None)
    return {seq: override for seq, override in found.items() if override.holds(now)}


def since(now: datetime) -> str:
    """The time before which no override holds any more."""
    return stamp(now - LONGEST)


def waived(overrides: Iterable[Override], *, model: str, engine: str, now: datetime) -> frozenset[str]:
    """The refusals that are waived for this model and engine now; what `door.check` takes."""
    return frozenset(
        code
        for override in overrides
        if (override.model, override.engine) == (model, engine) and override.holds(now)
        for code in override.waives
    )


def detail(override: Override) -> dict[str, object]:
    """What the audit's entry holds of it, and what is shown."""
    return {**asdict(override), "waives": list(override.waives)}


def _read(event: Event) -> Override:
    said = json.loads(event.detail)
    return Override(**{**said, "waives": tuple(said["waives"])})
