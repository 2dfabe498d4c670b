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
from app.access.roles import ROLE_NAMES
from app.errors.tree import BadField, Refused, UnknownThing
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KeyLimits, KnownKey, KnownOperator, timestamp

ADMIN: Final = "admin"
"""The operator whose token is made at the first start, or configured; has the role administer."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OF_THE_CONFIGURATION: Final = re.compile(r"key-[0-9]+")
_RESERVED: Final = {
    "key": frozenset({ANONYMOUS}),
    "operator": frozenset({ADMIN, "configuration", "gateway", "operator", "SIGHUP"}),
}
"""Names that would be taken for somebody else in a metric, a log line or the audit."""

Kind = Literal["key", "operator"]


def add_key(registry: Registry, name: str, limits: KeyLimits, actor: str) -> str:
    """Add a caller's key; its secret. Raises BadField (name), Refused (name_taken, too_many_keys)."""
    stated = {limit: value for limit, value in asdict(limits).items() if value is not None}
    return _add("key", registry, _entry(actor, "api_key.added", name, limits=stated), limits=limits)


def add_operator(registry: Registry, name: str, role: str, actor: str) -> str:
    """Add an operator; the token. Raises BadField (name, role), Refused (name_taken, too_many_operators)."""
    if role not in ROLE_NAMES:
        raise BadField(f"role: must be one of {', '.join(ROLE_NAMES)}", param="role")
    return _add("operator", registry, _entry(actor, "operator.added", name, role=role), role=role)


def limit_key(registry: Registry, name: str, changes: Mapping[str, int | None], actor: str) -> None:
    """Change limits of a caller's key; None takes one away. Its secret and what it has used stay. Raises UnknownThing."""
    limits = replace(_active("key", name, registry).limits, **changes)
    registry.change(KnownKey, _entry(actor, "api_key.limited", name, limits=dict(changes)), **asdict(limits))


def rotate_key(registry: Registry, name: str, overlap: int, actor: str) -> str:
    """Give a caller's key a new secret, which is returned; the old one works for `overlap` seconds more.

    Limits, usage and budget stay. Raises UnknownThing.
    """
    known, secret = _active("key", name, registry), new_key("key")
    until = timestamp(datetime.now(UTC) + timedelta(seconds=overlap))
    entry = _entry(actor, "api_key.rotated", name, old_until=until)
    columns = {"digest": digest(secret).hex(), "old_digest": known.digest, "old_until": until}
    registry.change(KnownKey, entry, **columns)
    return secret


def revoke(registry: Registry, kind: Kind, name: str, actor: str) -> None:
    """Revoke a caller's key or an operator. Raises UnknownThing."""
    known = _active(kind, name, registry)
    entry = _entry(actor, f"{'api_' if kind == 'key' else ''}{kind}.revoked", name)
    registry.change(type(known), entry, revoked=entry.at)


def new_key(kind: Kind) -> str:
    """A secret of 256 bits; its beginning lets a secret scanner recognize it."""
    return f"{'sk' if kind == 'key' else 'op'}-manners-{secrets.token_urlsafe(32)}"


def _known(kind: Kind, registry: Registry) -> dict[str, Any]:
    """The keys or operators that are not revoked, by name."""
    rows = registry.all(KnownKey) if kind == "key" else registry.all(KnownOperator)
    return {row.name: row for row in rows if row.revoked is None}


def _active(kind: Kind, name: str, registry: Registry) -> Any:
    """The one of this name. Raises UnknownThing."""
    if (known := _known(kind, registry).get(name)) is not None:
        return known
    whose = "admin's token and keys of the configuration are changed in their files: then manners reload"
    text = f"the state folder has no {kind} {name[:64]!r} (manners {kind} list); {whose}"
    raise UnknownThing(text, f"{kind}_not_found")


def _add(kind: Kind, registry: Registry, entry: AuditEntry, **columns: Any) -> str:
    """The secret of a new one. Raises BadField, Refused: the name cannot be given, or there is no room."""
    name, made = entry.subject, KnownKey if kind == "key" else KnownOperator
    if not NAME.fullmatch(name):
        raise BadField(f"name: must match ^{NAME.pattern}$", param="name")
    if name in _RESERVED[kind] or (kind == "key" and _OF_THE_CONFIGURATION.fullmatch(name)):
        raise BadField(f"name: {name} means somebody else already; take another", param="name")
    known = _known(kind, registry)
    if name in known:
        raise Refused(
            f"there is a {kind} {name} already; revoke it first, or take another name", "name_taken"
        )
    if len(known) >= MAX_KEYS:
        raise Refused(f"there are {MAX_KEYS} {kind}s, and no more fit; revoke one first", f"too_many_{kind}s")
    secret = new_key(kind)
    registry.add_named(made(name=name, digest=digest(secret).hex(), created=entry.at, **columns), entry)
    return secret


def _entry(actor: str, verb: str, name: str, **detail: Any) -> AuditEntry:
    at = timestamp(datetime.now(UTC))
    return AuditEntry(at=at, actor=actor, verb=verb, subject=name, detail=detail)
