"""What the registry holds, as values. Digests are `sha256:` and 64 hex digits, times RFC 3339 in UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

AliasName = Literal["live", "previous", "baseline"]
Thing = Literal["artefact", "engine", "report", "key"]
"""What can be revoked; a key is a signer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownArtefact:
    """An artefact that was seen here, as its manifest describes it; `root` identifies it."""

    root: str
    name: str
    format: str
    base_model: str | None
    parents: Mapping[str, str]
    created: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEngine:
    """How an artefact is served: canonical JSON of the spec, and its digest. None: nothing local."""

    digest: str
    name: str
    artefact: str | None
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReport:
    """A report that was uploaded; `digest` is of its envelope, `statement` of what was signed.

    `artefact` and `baseline` are root digests: of what was judged, and of what it was compared with.
    """

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
    """A movable name of a model. `generation` goes up by one with every move, also to nothing."""

    model: str
    name: AliasName
    engine: str | None
    generation: int
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasMove:
    """Point an alias somewhere. `generation` is the one it was read at, 0 if it was not there; None: whatever."""

    model: str
    name: AliasName
    engine: str | None
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """Something is not to be trusted any more."""

    thing: Thing
    id: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A promotion or a rollback. `state` is the machine's JSON; `result` and `error` are JSON, too.

    `key` is the caller's idempotency key and `request` the digest of what came with it.
    """

    id: str
    kind: str
    model: str
    phase: str
    state: str
    created: str
    done: bool = False
    result: str | None = None
    error: str | None = None
    key: str | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the audit is to say of a change: who, what, to what, and the numbers behind it.

    `detail` holds what JSON can.
    """

    at: str
    actor: str
    verb: str
    subject: str
    operation: str | None = None
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An entry as it stands in the table: `detail` as canonical JSON, chained to the one before."""

    seq: int
    at: str
    actor: str
    verb: str
    subject: str
    operation: str | None
    detail: str
    prev_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class Head:
    """The last event of a chain. Kept elsewhere (a log), it also shows that events were cut off."""

    seq: int
    hash: str


def timestamp(moment: datetime) -> str:
    """A time with a zone as the registry stores it: RFC 3339, UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
