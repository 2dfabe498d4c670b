"""Keys and operators in the registry: added, changed, revoked. A secret is returned once, and only its digest is kept.

Used by the gateway, and by commands while no gateway runs: the registry's lock decides which of the two it is.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from app.access.accounts import ANONYMOUS
from app.access.keys import MAX_KEYS, digest
from app.errors.tree import BadField, Refused, UnknownThing
from app.registry.registry import TABLES, Registry
from app.registry.values import AuditEntry, KnownKey, KnownOperator, timestamp

ADMIN: Final = "admin"
"""The operator whose token is made at the first start, or configured; has the role administer."""
Kind = Literal["key", "operator"]
KINDS: Final[Mapping[Kind, type[KnownKey | KnownOperator]]] = {"key": KnownKey, "operator": KnownOperator}
_RESERVED: Final = {
    "key": re.compile(rf"{ANONYMOUS}|key-[0-9]+"),
    "operator": re.compile(rf"{ADMIN}|configuration|gateway|operator|SIGHUP"),
}
"""Names that would be taken for somebody else in a metric, a log line or the audit."""


def add(
    registry: Registry, kind: Kind, name: str, actor: str, detail: Mapping[str, Any], **columns: Any
) -> str:
    """Add a caller's key (`limits`) or an operator (`role`); the secret. `detail` is for the audit.

    Raises BadField (name), Refused (name_taken, too_many_keys, too_many_operators).
    """
    if _RESERVED[kind].fullmatch(name):
        raise BadField(f"name: {name} means somebody else already; take another", param="name")
    known = _known(registry, kind)
    if name in known:
        why = f"there is a {kind} {name} already; revoke it first, or take another name"
        raise Refused(why, "name_taken")
    if len(known) >= MAX_KEYS:
        raise Refused(f"there are {MAX_KEYS} {kind}s, and no more fit; revoke one first", f"too_many_{kind}s")
    secret, entry = new_key(kind), _entry(kind, "added", name, actor, **detail)
    value = KINDS[kind](name=name, digest=digest(secret), created=entry.at, **columns)
    registry.add_named(value, entry)
    return secret


def limit(registry: Registry, kind: Kind, name: str, actor: str, changes: Mapping[str, int | None]) -> None:
    """Change limits of a caller's key; None takes one away. Its secret and what it has used stay. Raises UnknownThing."""
    limits = replace(_active(registry, kind, name).limits, **changes)
    registry.change(KnownKey, _entry(kind, "limited", name, actor, limits=dict(changes)), **asdict(limits))


def rotate(registry: Registry, kind: Kind, name: str, actor: str, overlap: int) -> str:
    """Give a caller's key a new secret, which is returned; the old one works for `overlap` seconds more.

    Limits, usage and budget stay. Raises UnknownThing.
    """
    known, secret = _active(registry, kind, name), new_key(kind)
    until = timestamp(datetime.now(UTC) + timedelta(seconds=overlap))
    columns = {"digest": digest(secret), "old_digest": known.digest, "old_until": until}
    registry.change(KnownKey, _entry(kind, "rotated", name, actor, old_until=until), **columns)
    return secret


def revoke(registry: Registry, kind: Kind, name: str, actor: str) -> None:
    """Revoke a caller's key or an operator. Raises UnknownThing."""
    _active(registry, kind, name)
    entry = _entry(kind, "revoked", name, actor)
    registry.change(KINDS[kind], entry, revoked=entry.at)


def new_key(kind: Kind) -> str:
    """A secret of 256 bits; its beginning lets a secret scanner recognize it."""
    return f"{'sk' if kind == 'key' else 'op'}-manners-{secrets.token_urlsafe(32)}"


def _known(registry: Registry, kind: Kind) -> dict[str, Any]:
    """The keys or operators that are not revoked, by name."""
    return {row.name: row for row in registry.all(KINDS[kind]) if row.revoked is None}


def _active(registry: Registry, kind: Kind, name: str) -> Any:
    """The one of this name. Raises UnknownThing."""
    if (known := _known(registry, kind).get(name)) is not None:
        return known
    whose = "admin's token and keys of the configuration are changed in their files: then manners reload"
    text = f"the state folder has no {kind} {name[:64]!r} (manners {kind} list); {whose}"
    raise UnknownThing(text, f"{kind}_not_found")


def _entry(kind: Kind, done: str, name: str, actor: str, **detail: Any) -> AuditEntry:
    verb, at = f"{TABLES[KINDS[kind]]}.{done}", timestamp(datetime.now(UTC))
    return AuditEntry(at=at, actor=actor, verb=verb, subject=name, detail=detail)
