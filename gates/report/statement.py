"""The content of a report as values: what was judged, on what, and what was found."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from gates.contracts.numerics import Numerics
from gates.contracts.verdict import Decision, Outcome, Verdict
from gates.decode.decoder import DecodeError
from gates.report.codec import canonical, encode

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """An artefact as a report states it; `root`, `base_model` and `parents` as in its manifest."""

    name: str
    format: str
    root: str
    base_model: str | None
    parents: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What served an artefact. `image` is NAME@sha256:...; `argv` and `environment` are without what changes from start to start;
    `build` is what the engine reports; `model_file` is the digest of a loaded file; `name` is for display.
    """

    name: str
    driver: str
    dialect: str
    image: str | None
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    build: str
    model_file: str | None

    @property
    def digest(self) -> str:
        """`sha256:` and the SHA-256 of the canonical JSON of all fields but the name."""
        return digest_of(replace(self, name=""))


@dataclass(frozen=True, slots=True)
class ComparedArm:
    """One side of the comparison. `reply_format`: how the model writes calls. `numerics` is None, and `reply_format` "", where the
    program did not record it.
    """

    model: ModelIdentity
    engine: EngineIdentity
    numerics: Numerics | None = None
    reply_format: str = ""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A suite, policy or data file: name, version if it has one, and digest."""

    name: str
    version: int | None
    digest: str


@dataclass(frozen=True, slots=True)
class Harness:
    """The program that measured. `commit` is None outside a checkout; `tools` are package versions."""

    version: str
    commit: str | None
    dirty: bool
    tools: Mapping[str, str]


class SampleEntry(NamedTuple):
    """One line of samples.jsonl: the digests of its key and of the line, 64 hex digits each, and its worst outcome."""

    key: str
    case: str
    arm: str
    outcome: Outcome
    sha256: str


@dataclass(frozen=True, slots=True)
class SampleIndex:
    """The samples file: the digest of all its bytes, and its lines in order."""

    digest: str
    lines: tuple[SampleEntry, ...]


@dataclass(frozen=True, slots=True)
class GateTally:
    """The number of cases of one arm in one gate by outcome; over all cases, or over the named ones."""

    gate: str
    arm: str
    named: bool
    ok: int
    bad: int
    lost: int

    @property
    def n(self) -> int:
        return self.ok + self.bad + self.lost


@dataclass(frozen=True, slots=True)
class CaseFailure:
    """A case that was not ok in an arm, with one line of evidence."""

    gate: str
    arm: str
    case: str
    outcome: Outcome
    named: bool
    why: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """Order statistics of measured times, in reports of earlier releases. Failed requests have an infinite time, or a rate of 0."""

    gate: str
    arm: str
    unit: str
    n: int
    points: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that the report carries in its folder `attachments`, such as another benchmark's results. It decides nothing."""

    name: str
    digest: str

    def __post_init__(self) -> None:
        if self.name in ("", ".", "..") or "/" in self.name:
            raise DecodeError("name", f"must be a plain file name, not {self.name!r:.60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A whole report. Times are RFC 3339 in UTC. `ancestors`: artefacts that show that both arms are one model. `data`: files in
    which no prompt of the suite was found. `gateway`: `judged`, as in the policy, and the model's configuration by which replies were
    heard; {} in reports of earlier programs, which judged the engine alone. `sequential`: the seed of the order of a run that stopped when
    it was decided, "" for one of fixed size. `speed` and `distributions`: what releases to 0.3 stated beside the gates; kept, so that their reports still verify.
    """

    candidate: ComparedArm
    baseline: ComparedArm
    suite: Pinned
    policy: Pinned
    harness: Harness
    host: Mapping[str, str]
    decision: Decision
    tallies: tuple[GateTally, ...]
    failures: tuple[CaseFailure, ...]
    samples: SampleIndex
    created: str
    distributions: tuple[Distribution, ...] = ()
    expires: str | None = None
    ancestors: tuple[ModelIdentity, ...] = ()
    data: tuple[Pinned, ...] = ()
    speed: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    gateway: Mapping[str, str] = field(default_factory=dict)
    sequential: str = ""

    @property
    def verdict(self) -> Verdict:
        return self.decision.verdict

    @property
    def judged(self) -> str:
        """The replies that decided, as in the policy; "" where the program did not record it."""
        return self.gateway.get("judged", "")

    def tally(self, gate: str, arm: str, *, named: bool) -> GateTally | None:
        """The tally of a gate in an arm, or None."""
        wanted = (gate, arm, named)
        return next((t for t in self.tallies if (t.gate, t.arm, t.named) == wanted), None)


def digest_of(value: Any) -> str:
    """`sha256:` and the SHA-256 of a value's canonical JSON."""
    return f"sha256:{hashlib.sha256(canonical(encode(value))).hexdigest()}"


def format_time(when: datetime) -> str:
    """An aware time as a report writes it: RFC 3339, UTC, to the second."""
    return when.astimezone(UTC).strftime(_TIME)


def parse_time(text: str) -> datetime:
    """The time that `format_time` wrote. Raises DecodeError for any other form."""
    try:
        when = datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError:
        when = None
    if when is None or format_time(when) != text:  # strptime also accepts a month of one digit
        raise DecodeError("", f"{text!r:.60} is no time of the form 2026-11-21T09:30:15Z")
    return when
