"""The hash chain over the audit events. Pure.

The hash of an event is the SHA-256, in hex, of the hash before it and its own content as canonical
JSON (sorted keys, no spaces): to change, drop or swap an event, all later ones have to be rewritten.
A chain alone does not show that its end was cut off: compare its head with one that was kept elsewhere.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Final

from app.registry.errors import ChainBroken
from app.registry.values import AuditEntry, AuditEvent
from gates.decode.decoder import DecodeError, canonical

GENESIS: Final = AuditEvent(
    seq=0, at="", actor="", verb="", subject="", operation=None, detail="", prev_hash="", hash="0" * 64
)  # before the first event


def link(head: AuditEvent, entry: AuditEntry) -> AuditEvent:
    """The event that follows `head`. Raises DecodeError if the detail is not JSON."""
    fields = asdict(entry) | {"detail": canonical(entry.detail).decode()}
    event = AuditEvent(**fields, seq=head.seq + 1, prev_hash=head.hash, hash="")
    return replace(event, hash=digest(event))


def digest(event: AuditEvent) -> str:
    """The hash that the event should have."""
    content = asdict(event)
    previous: str = content.pop("prev_hash")
    del content["hash"]
    return hashlib.sha256(previous.encode() + canonical(content)).hexdigest()


def verify(events: Iterable[AuditEvent], head: AuditEvent = GENESIS) -> AuditEvent:
    """The last of the events behind `head`. Raises ChainBroken: the first that is missing, altered or out of place."""
    for event in events:
        if event.seq != head.seq + 1:
            raise ChainBroken(head.seq + 1, f"is missing; event {event.seq} comes next")
        if event.prev_hash != head.hash:
            raise ChainBroken(event.seq, "does not follow from the one before")
        try:
            if event.hash != digest(event):
                raise ChainBroken(event.seq, "was changed after it was written")
        except DecodeError:
            raise ChainBroken(event.seq, "is not text") from None
        head = event
    return head
