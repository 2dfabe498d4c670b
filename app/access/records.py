"""Keys and operators in the registry: added, revoked, shown. A secret is returned once, and only its digest is kept.

Used by the gateway, and by commands while no gateway runs: the registry's lock decides which of the two it is.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from app.access.accounts import ANONYMOUS
from app.access.clock import DAY
from app.access.keys import MAX_KEYS, digest, new_key
from app.access.roles import ROLE_NAMES
from app.errors.tree import BadField, Refused, UnknownThing
from app.registry.errors import UnknownRow
from app.registry.reader import RegistryReader
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KeyLimits, KnownKey, KnownOperator, Meter, timestamp

ADMIN: Final = "admin"
"""The operator whose token is made at the first start, or configured; has the role administer."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OF_THE_CONFIGURATION: Final = re.compile(r"key-[0-9]+")
_RESERVED: Final = {
    "key": frozenset({ANONYMOUS}),
    "operator": frozenset({ADMIN, "configuration", "gateway", "operator", "SIGHUP"}),
}
"""Names that would be taken for somebody else in a metric, a log line or the audit."""


@dataclass(frozen=True, slots=True)
class AccessRecords:
    """All that the registry holds of keys and operators. `seq` is its last event's: the higher, the newer."""

    keys: tuple[KnownKey, ...] = ()
    usages: Mapping[str, Meter] = field(default_factory=dict)
    operators: tuple[KnownOperator, ...] = ()
    seq: int = 0


def read(reader: RegistryReader) -> AccessRecords:
    """Everything, at one time. Raises StorageFailed."""
    return AccessRecords(reader.api_keys(), reader.usages(), reader.operators(), reader.head().seq)


def add_key(registry: Registry, name: str, limits: KeyLimits, actor: str) -> str:
    """Add a caller's key; its secret. Raises BadField (name), Refused (name_taken, too_many_keys)."""
    _check_name("key", name)
    _check_room("key", name, [key.name for key in registry.api_keys() if key.revoked is None])
    secret, at = new_key("sk"), _now()
    known = KnownKey(name=name, digest=digest(secret).hex(), created=at, limits=limits)
    detail = {limit: value for limit, value in asdict(limits).items() if value is not None}
    registry.add_named(
        known, AuditEntry(at=at, actor=actor, verb="api_key.added", subject=name, detail={"limits": detail})
    )
    return secret


def limit_key(registry: Registry, name: str, changes: Mapping[str, int | None], actor: str) -> None:
    """Change limits of a caller's key; None takes one away. Its secret and what it has used stay. Raises UnknownThing."""
    known = _key(registry, name)
    entry = AuditEntry(
        at=_now(), actor=actor, verb="api_key.limited", subject=name, detail={"limits": dict(changes)}
    )
    registry.change(KnownKey, entry, **asdict(replace(known.limits, **changes)))


def rotate_key(registry: Registry, name: str, overlap: int, actor: str) -> str:
    """Give a caller's key a new secret, which is returned; the old one works for `overlap` seconds more.

    Limits, usage and budget stay. Raises UnknownThing.
    """
    known, secret, at = _key(registry, name), new_key("sk"), datetime.now(UTC)
    until = timestamp(at + timedelta(seconds=overlap))
    entry = AuditEntry(
        at=timestamp(at), actor=actor, verb="api_key.rotated", subject=name, detail={"old_until": until}
    )
    new = digest(secret).hex()
    registry.change(KnownKey, entry, digest=new, old_digest=known.digest, old_until=until)
    return secret


def secrets_of(key: KnownKey, now: float) -> dict[bytes, float]:
    """The digests of the secrets that a key has now, each with its end in Unix seconds."""
    found = {bytes.fromhex(key.digest): math.inf}
    if key.old_digest and key.old_until and (end := datetime.fromisoformat(key.old_until).timestamp()) > now:
        found[bytes.fromhex(key.old_digest)] = end
    return found


def _key(registry: Registry, name: str) -> KnownKey:
    """The key of this name that is not revoked. Raises UnknownThing."""
    for key in registry.api_keys():
        if key.name == name and key.revoked is None:
            return key
    raise UnknownThing(f"there is no key {name[:64]!r}; manners key list names them", "key_not_found")


def revoke_key(registry: Registry, name: str, actor: str) -> None:
    """Revoke a caller's key. Raises UnknownThing."""
    if _OF_THE_CONFIGURATION.fullmatch(name):
        raise UnknownThing(
            f"{name} is a key of the configuration: take it out of MANNERS_API_KEYS or gateway.api_keys_file",
            "key_not_found",
        )
    _key(registry, name)
    entry = AuditEntry(at=_now(), actor=actor, verb="api_key.revoked", subject=name)
    registry.change(KnownKey, entry, revoked=entry.at)


def add_operator(registry: Registry, name: str, role: str, actor: str) -> str:
    """Add an operator; the token. Raises BadField (name, role), Refused (name_taken, too_many_operators)."""
    _check_name("operator", name)
    if role not in ROLE_NAMES:
        raise BadField(f"role: must be one of {', '.join(ROLE_NAMES)}", param="role")
    _check_room("operator", name, [known.name for known in registry.operators() if known.revoked is None])
    secret, at = new_key("op"), _now()
    registry.add_named(
        KnownOperator(name=name, digest=digest(secret).hex(), role=role, created=at),
        AuditEntry(at=at, actor=actor, verb="operator.added", subject=name, detail={"role": role}),
    )
    return secret


def revoke_operator(registry: Registry, name: str, actor: str) -> None:
    """Revoke an operator. Raises UnknownThing."""
    if name == ADMIN:
        raise UnknownThing(
            "admin is who holds the first token: replace it (admin.token in the state folder, or "
            "gateway.admin_token_file), then: manners reload",
            "operator_not_found",
        )
    entry = AuditEntry(at=_now(), actor=actor, verb="operator.revoked", subject=name)
    try:
        registry.change(KnownOperator, entry, revoked=entry.at)
    except UnknownRow:
        raise UnknownThing(
            f"there is no operator {name[:64]!r}; manners operator list names them", "operator_not_found"
        ) from None


def _check_name(kind: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadField(f"name: must match ^{NAME.pattern}$", param="name")
    if name in _RESERVED[kind] or (kind == "key" and _OF_THE_CONFIGURATION.fullmatch(name)):
        raise BadField(f"name: {name} means somebody else already; take another", param="name")


def _check_room(kind: str, name: str, active: Collection[str]) -> None:
    if name in active:
        raise Refused(
            f"there is a {kind} {name} already; revoke it first, or take another name", "name_taken"
        )
    if len(active) >= MAX_KEYS:
        raise Refused(f"there are {MAX_KEYS} {kind}s, and no more fit; revoke one first", f"too_many_{kind}s")


def _now() -> str:
    return timestamp(datetime.now(UTC))


# ------------------------------------------------------------------------------------------ views


def key_view(key: KnownKey, meter: Meter, in_flight: int, now: float) -> dict[str, Any]:
    """A key as operators see it; never its secret or its digest."""
    used = {
        "today": meter.today if meter.day >= int(now // DAY) else 0,
        "total": meter.total,
        "in_flight": in_flight,
    }
    return {
        "name": key.name,
        "source": "state",
        "limits": asdict(key.limits),
        "used": used,
        "created": key.created,
        "revoked": key.revoked,
        "old_secret_until": key.old_until,
    }


def configured_key_view(name: str, in_flight: int) -> dict[str, Any]:
    """A key of the configuration: it has no limits and is not metered over a restart."""
    view = key_view(KnownKey(name=name, digest="", created=""), Meter(), in_flight, 0.0)
    used = {"today": None, "total": None, "in_flight": in_flight}
    return {**view, "source": "configuration", "created": None, "used": used}


def operator_view(operator: KnownOperator) -> dict[str, Any]:
    """An operator as operators see each other."""
    return {name: getattr(operator, name) for name in ("name", "role", "created", "revoked")}
