"""Keys and operators in the registry: added, revoked, shown. A secret is returned once, and only its digest is kept.

Used by the gateway, and by commands while no gateway runs: the registry's lock decides which of the two it is.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from app.access.accounts import ANONYMOUS
from app.access.clock import DAY
from app.access.keys import MAX_KEYS, digest, new_key
from app.access.roles import ROLE_NAMES, Role
from app.errors.tree import BadField, Refused, UnknownThing
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

Kind = Literal["key", "operator"]


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
    _check_free("key", name, registry)
    secret = new_key("sk")
    stated = {limit: value for limit, value in asdict(limits).items() if value is not None}
    entry = _entry(actor, "api_key.added", name, limits=stated)
    known = KnownKey(name=name, digest=digest(secret).hex(), created=entry.at, limits=limits)
    registry.add_named(known, entry)
    return secret


def add_operator(registry: Registry, name: str, role: str, actor: str) -> str:
    """Add an operator; the token. Raises BadField (name, role), Refused (name_taken, too_many_operators)."""
    if role not in ROLE_NAMES:
        raise BadField(f"role: must be one of {', '.join(ROLE_NAMES)}", param="role")
    _check_free("operator", name, registry)
    secret, entry = new_key("op"), _entry(actor, "operator.added", name, role=role)
    known = KnownOperator(name=name, digest=digest(secret).hex(), role=role, created=entry.at)
    registry.add_named(known, entry)
    return secret


def limit_key(registry: Registry, name: str, changes: Mapping[str, int | None], actor: str) -> None:
    """Change limits of a caller's key; None takes one away. Its secret and what it has used stay. Raises UnknownThing."""
    limits = replace(_active("key", name, registry).limits, **changes)
    registry.change(KnownKey, _entry(actor, "api_key.limited", name, limits=dict(changes)), **asdict(limits))


def rotate_key(registry: Registry, name: str, overlap: int, actor: str) -> str:
    """Give a caller's key a new secret, which is returned; the old one works for `overlap` seconds more.

    Limits, usage and budget stay. Raises UnknownThing.
    """
    known, secret = _active("key", name, registry), new_key("sk")
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


_ELSEWHERE: Final = {
    "key": "{name} is a key of the configuration: take it out of MANNERS_API_KEYS or gateway.api_keys_file",
    "operator": "admin is who holds the first token: replace it (admin.token in the state folder, or "
    "gateway.admin_token_file), then: manners reload",
}


def _known(kind: Kind, registry: Registry) -> dict[str, Any]:
    """The keys or operators that are not revoked, by name."""
    rows = registry.api_keys() if kind == "key" else registry.operators()
    return {row.name: row for row in rows if row.revoked is None}


def _active(kind: Kind, name: str, registry: Registry) -> Any:
    """The one of this name. Raises UnknownThing."""
    if (known := _known(kind, registry).get(name)) is not None:
        return known
    text = f"there is no {kind} {name[:64]!r}; manners {kind} list names them"
    if name == ADMIN if kind == "operator" else _OF_THE_CONFIGURATION.fullmatch(name):
        text = _ELSEWHERE[kind].format(name=name)
    raise UnknownThing(text, f"{kind}_not_found")


def _check_free(kind: Kind, name: str, registry: Registry) -> None:
    """Raises BadField, Refused: the name cannot be given, or there is no room."""
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


def _entry(actor: str, verb: str, name: str, **detail: Any) -> AuditEntry:
    at = timestamp(datetime.now(UTC))
    return AuditEntry(at=at, actor=actor, verb=verb, subject=name, detail=detail)


def secrets_of(key: KnownKey, now: float) -> dict[bytes, float]:
    """The digests of the secrets that a key has now, each with its end in Unix seconds."""
    found = {bytes.fromhex(key.digest): math.inf}
    if key.old_digest and key.old_until and (end := datetime.fromisoformat(key.old_until).timestamp()) > now:
        found[bytes.fromhex(key.old_digest)] = end
    return found


def key_view(key: KnownKey, meter: Meter, in_flight: int, now: float) -> dict[str, Any]:
    """A key as operators see it; never its secret or its digest. One of the configuration is not metered over a restart."""
    today = meter.today if meter.day >= int(now // DAY) else 0
    is_stored = bool(key.created)
    return {
        "name": key.name,
        "source": "state" if is_stored else "configuration",
        "limits": asdict(key.limits),
        "used": {
            "today": today if is_stored else None,
            "total": meter.total if is_stored else None,
            "in_flight": in_flight,
        },
        "created": key.created or None,
        "revoked": key.revoked,
        "old_secret_until": key.old_until,
    }


def operator_views(operators: tuple[KnownOperator, ...]) -> list[dict[str, Any]]:
    """All operators as they see each other; `admin` is who holds the first token."""
    names = ("name", "role", "created", "revoked")
    admin = {"name": ADMIN, "role": str(Role.ADMINISTER), "created": None, "revoked": None}
    return [admin, *({name: getattr(one, name) for name in names} for one in operators)]
