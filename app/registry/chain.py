"""The hash chain over the audit events. Pure.

The hash of an event is the SHA-256, in hex, of the hash before it and its own content as canonical
JSON (sorted keys, no spaces): to change, drop or swap an event, all later ones have to be rewritten.
A chain alone does not show that its end was cut off; for that, compare with a `Head` kept elsewhere.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from app.registry.errors import ChainBroken
from app.registry.values import AuditEntry, AuditEvent, Head
from gates.report.codec import CodecError, canonical

GENESIS: Final = Head(0, "0" * 64)
"""Before the first event."""


def link(head: Head, entry: AuditEntry) -> AuditEvent:
    """The event that follows `head`. Raises CodecError if the detail is not JSON."""
    detail = canonical(entry.detail).decode()
    event = AuditEvent(
        seq=head.seq + 1,
        at=entry.at,
        actor=entry.actor,
        verb=entry.verb,
        subject=entry.subject,
        operation=entry.operation,
        detail=detail,
        prev_hash=head.hash,
        hash="",
    )
    return replace(event, hash=digest(event))


def digest(event: AuditEvent) -> str:
    """The hash that the event should have."""
    content = {
        "seq": event.seq,
        "at": event.at,
        "actor": event.actor,
        "verb": event.verb,
        "subject": event.subject,
        "operation": event.operation,
        "detail": event.detail,
    }
    return hashlib.sha256(event.prev_hash.encode() + canonical(content)).hexdigest()


def verify(events: Iterable[AuditEvent], known: Head = GENESIS, before: Head = GENESIS) -> Head:
    """The head of a chain, from its first event on, or from the one behind `before`. `known` must lie on it.

    Raises:
        ChainBroken: names the first event that is missing, altered or out of place.
    """
    head = before
    for event in events:
        _check(head, event)
        head = Head(event.seq, event.hash)
        if head.seq == known.seq and head.hash != known.hash:
            raise ChainBroken(head.seq, "is not the one that was there before")
    if head.seq < known.seq:
        raise ChainBroken(head.seq + 1, f"is missing, and so is everything up to event {known.seq}")
    return head


def _check(head: Head, event: AuditEvent) -> None:
    if event.seq != head.seq + 1:
        raise ChainBroken(head.seq + 1, f"is missing; event {event.seq} comes next")
    if event.prev_hash != head.hash:
        raise ChainBroken(event.seq, "does not follow from the one before")
    try:
        expected = digest(event)
    except CodecError:
        raise ChainBroken(event.seq, "is not text") from None
    if event.hash != expected:
        raise ChainBroken(event.seq, "was changed after it was written")
