"""What a report states, as values: what was judged, what it was bound to, and what was found.

`gates/report/document.py` gives a Statement its text and reads it back; `gates/report/gather.py`
makes the parts out of a run's results; `gates/report/checks.py` says what a statement proves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from gates.contracts.verdict import Decision, Outcome, Verdict
from gates.report.codec import CodecError, canonical, encode

CANDIDATE: Final = "candidate"
BASELINE: Final = "baseline"
"""The two arms that are compared; samples of other arms are "again" and "control:NAME"."""

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Model:
    """An artefact as a report speaks of it; `root`, `base_model` and `parents` as in its manifest."""

    name: str
    format: str
    root: str
    base_model: str | None
    parents: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Engine:
    """What served an artefact. `image` is NAME@sha256:..., None without a container.

    `argv` and `environment` are canonical: as the driver builds them, without what changes from
    start to start (ports, host names, paths of the state folder). `build` is the engine's own word
    for its version; `model_file` the digest of the file it loaded, None where it loads a folder.
    `name` is the configuration's, for people.
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
        """sha256:... over the canonical JSON of all but the name: the same engine, the same digest."""
        return digest_of(replace(self, name=""))


@dataclass(frozen=True, slots=True)
class Arm:
    """A side of the comparison: an artefact and the engine that served it."""

    model: Model
    engine: Engine


@dataclass(frozen=True, slots=True)
class Pinned:
    """A suite or a policy: its name, its version if it has one, and the digest that identifies it."""

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


class SampleLine(NamedTuple):
    """One line of samples.jsonl: the digest of its key and that of the line, its line break included.

    Both are 64 hex digits. `outcome` is the worst that any gate made of the sample.
    """

    key: str
    case: str
    arm: str
    outcome: Outcome
    sha256: str


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples file: the digest of all of its bytes, and its lines in their order."""

    digest: str
    lines: tuple[SampleLine, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """How one arm did in one gate: cases that were ok, bad or lost; all of them, or the named ones."""

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
class Failure:
    """A case that was not ok in an arm, with its line of evidence."""

    gate: str
    arm: str
    case: str
    outcome: Outcome
    named: bool
    why: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of one arm: `points` are order statistics, smallest first, in `unit`.

    Of `n` measurements there are at most 201 points, evenly spaced in rank from the smallest to the
    largest. What never came is infinitely late, or has a rate of 0.
    """

    gate: str
    arm: str
    unit: str
    n: int
    points: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A whole report. `created` and `expires` are RFC 3339 in UTC, to the second.

    `expires` is the producer's own limit, None without one; how old a report may be is for its
    reader to say. `ancestors` are further artefacts that the two arms come from, as far as they are
    needed to show that both are one model. `data` are files of training or calibration
    conversations in which no prompt of the suite was found; nothing is known of others. `speed` are
    sentences on what the times depend on: the prompt's length, the gateway between.
    """

    candidate: Arm
    baseline: Arm
    suite: Pinned
    policy: Pinned
    harness: Harness
    host: Mapping[str, str]
    decision: Decision
    tallies: tuple[Tally, ...]
    failures: tuple[Failure, ...]
    distributions: tuple[Distribution, ...]
    samples: Samples
    created: str
    expires: str | None = None
    ancestors: tuple[Model, ...] = ()
    data: tuple[Pinned, ...] = ()
    speed: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return self.decision.verdict

    def tally(self, gate: str, arm: str, *, named: bool) -> Tally | None:
        """The tally of a gate in an arm, if there is one."""
        wanted = (gate, arm, named)
        return next((t for t in self.tallies if (t.gate, t.arm, t.named) == wanted), None)


def digest_of(value: Any) -> str:
    """sha256:... over the canonical JSON of a value."""
    return f"sha256:{hashlib.sha256(canonical(encode(value))).hexdigest()}"


def stamp(when: datetime) -> str:
    """An aware time as a report writes it: RFC 3339, UTC, to the second."""
    return when.astimezone(UTC).strftime(_TIME)


def moment(text: str) -> datetime:
    """The time that `stamp` wrote. Raises CodecError for any other form."""
    try:
        when = datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError:
        when = None
    if when is None or stamp(when) != text:  # strptime takes a month of one digit, too
        raise CodecError(f"{text!r:.60} is no time of the form 2026-11-21T09:30:15Z")
    return when
