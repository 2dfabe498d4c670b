"""What the registry holds, as values. Digests are `sha256:` and 64 hex digits, times RFC 3339 in UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

Thing = Literal["artefact", "engine", "report", "key"]  # what can be revoked; `key` is a signer's


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownArtefact:
    """An artefact, as its manifest describes it; `root` identifies it."""

    root: str
    name: str
    format: str
    base_model: str | None
    parents: Mapping[str, str]
    created: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEngine:
    """An engine: canonical JSON of its spec, and the digest of that. `artefact` is None if it has none here."""

    digest: str
    name: str
    artefact: str | None
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReport:
    """An uploaded report: the digests of its envelope, of the signed statement, and of the roots of model and baseline."""

    digest: str
    statement: str
    artefact: str
    suite: str
    policy: str
    baseline: str
    verdict: str
    created: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """`live` or `previous` of a model. `generation` grows by one with every move, also when it is cleared."""

    model: str
    name: str
    engine: str | None
    generation: int
    since: str


@dataclass(frozen=True, slots=True)
class RouteChange:
    """Where a model's `live` and `previous` are to point, if `live` is still of `generation` (0: it did not exist; None: whatever it is)."""

    model: str
    live: str
    previous: str | None
    generation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A revocation of something that must not be trusted any more."""

    thing: Thing
    id: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """Limits of a caller's key. None: without limit. `rpm`, `tpm`: requests and tokens a minute; `concurrency`: requests
    at once; `daily_budget`, `budget`: tokens a UTC day, and in all. Tokens are prompt and completion together."""

    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    daily_budget: int | None = None
    budget: int | None = None


UNLIMITED: Final = KeyLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A caller's key: its SHA-256 in hex, and its limits. Revoked ones are kept. A rotated key's old secret works until `old_until`."""

    name: str
    digest: str
    limits: KeyLimits = UNLIMITED
    created: str
    revoked: str | None = None
    old_digest: str | None = None
    old_until: str | None = None


class Meter(NamedTuple):
    """What a key has used: `requests` and `tokens` of the minute at the time `at`; tokens of the UTC day number
    `day`, and in all."""

    requests: float = 0.0
    tokens: float = 0.0
    at: float = 0.0
    day: int = 0
    today: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOperator:
    """An operator: the SHA-256 of the token in hex, and the name of the role (`app.access.roles.Role`)."""

    name: str
    digest: str
    role: str
    created: str
    revoked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """A promotion or a rollback, with its state as JSON; the caller's idempotency key, and the digest of what came with it."""

    id: str
    kind: str
    model: str
    phase: str
    state: str
    created: str
    done: bool = False
    key: str | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A new audit entry: when, who, what, on what, and the figures behind it as JSON values (`detail`)."""

    at: str
    actor: str
    verb: str
    subject: str
    operation: str | None = None
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """A stored audit entry: `detail` as canonical JSON, with the hash chain."""

    seq: int
    at: str
    actor: str
    verb: str
    subject: str
    operation: str | None
    detail: str
    prev_hash: str
    hash: str


def timestamp(moment: datetime) -> str:
    """A time with a zone as the registry stores it: RFC 3339, UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
