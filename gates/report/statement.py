"""A report as values (what was judged, on what, and what was found), and as text: an in-toto Statement v1 in canonical JSON. Pure.

The subject is the artefact; everything else that the verdict depends on stands under `predicate.configuration`, as in in-toto's
test-result/v0.1. An inconclusive verdict is FAILED there, so that a reader of in-toto cannot take it for a pass; `verdict` beside it says
what it was. What is derived is for such readers: the signature covers it, and `parse` reads the values alone.

Sources: in-toto/attestation spec/v1 statement.md, resource_descriptor.md, digest_set.md; spec/predicates/test-result.md.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from gates.artefact.artefact import ModelIdentity
from gates.contracts import strict_json
from gates.contracts.numerics import Numerics
from gates.contracts.verdict import Decision, GateResult, Outcome, Verdict
from gates.decode.decoder import DecodeError, canonical, convert, encode

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:manners:gate-report:v1"
"""in-toto requires a URI with a version; it need not be resolvable."""
SAMPLES_FILE: Final = "samples.jsonl"

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


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
    """One side of the comparison. `reply_format`: how the model writes calls; "", and `numerics` None, where it was not recorded."""

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
    it was decided, "" for one of fixed size.
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
    expires: str | None = None
    ancestors: tuple[ModelIdentity, ...] = ()
    data: tuple[Pinned, ...] = ()
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


_IF_ANY: Final = ("attachments", "gateway", "sequential")
"""Left out where they are empty, as in every report of a release that did not know them."""
_OF_EARLIER: Final = {"curve": [], "curve_words": "", "alarms": []}
"""What releases to 0.3 said of a gate."""


def render(statement: Statement) -> bytes:
    """The statement's text, UTF-8. Raises DecodeError for NaN and for an invalid time."""
    for when in filter(None, (statement.created, statement.expires)):
        parse_time(when)
    model = statement.candidate.model
    document = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": model.name, "digest": _digest_set(model.root)}],
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(statement),
    }
    return canonical(document)


def _predicate(statement: Statement) -> dict[str, Any]:
    names = ("tallies", "failures", "ancestors", "data", "expires", *_IF_ANY)
    fields = {name: value for name in names if (value := getattr(statement, name)) or name not in _IF_ANY}
    decision = encode(statement.decision)
    decision["gates"] = [_OF_EARLIER | gate for gate in decision["gates"]]
    samples = {"digest": _digest_set(statement.samples.digest), "count": len(statement.samples.lines)}
    return {
        "result": "PASSED" if statement.verdict is Verdict.PASS else "FAILED",
        "configuration": _configuration(statement),
        **_tests(statement.decision.gates),
        **decision,
        **encode(fields),
        "samples": {"name": SAMPLES_FILE, **samples, "lines": encode(statement.samples.lines)},
        "timeCreated": statement.created,
        "distributions": [],  # of earlier releases, as `speed`
        "speed": [],
    }


def _configuration(statement: Statement) -> list[dict[str, Any]]:
    ours, theirs = statement.candidate, statement.baseline
    described = (
        ("candidate", ours.model, ours.model.root),
        ("engine", ours.engine, ours.engine.digest),
        ("baseline", theirs.model, theirs.model.root),
        ("baseline-engine", theirs.engine, theirs.engine.digest),
        ("suite", statement.suite, statement.suite.digest),
        ("policy", statement.policy, statement.policy.digest),
        ("harness", statement.harness, ""),
        ("host", statement.host, ""),
        ("numerics", ours.numerics, ""),
        ("baseline-numerics", theirs.numerics, ""),
        ("reply-format", ours.reply_format and {"format": ours.reply_format}, ""),
        ("baseline-reply-format", theirs.reply_format and {"format": theirs.reply_format}, ""),
    )
    return [
        {"name": name, "digest": _digest_set(digest or digest_of(value)), "annotations": encode(value)}
        for name, value, digest in described
        if value or name == "host"  # numerics and formats are left out where they were not recorded
    ]


def _digest_set(digest: str) -> dict[str, str]:
    """in-toto's DigestSet for a digest written `sha256:...`."""
    return {"sha256": digest.removeprefix("sha256:")}


def _tests(gates: tuple[GateResult, ...]) -> dict[str, list[str]]:
    """test-result's lists. Warned are advisory rules that did not pass."""
    lists: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for gate in gates:
        bad = "warnedTests" if gate.tier == "advisory" else "failedTests"
        lists["passedTests" if gate.verdict is Verdict.PASS else bad].append(f"{gate.gate}/{gate.rule}")
    return lists


def parse(text: bytes) -> Statement:
    """The statement with this text. Raises DecodeError, one line, for any other text."""
    try:
        found = strict_json.loads(text)
        for key, value in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
            if found[key] != value:
                raise DecodeError(key, f"is {found[key]!r:.60}, not {value}")
        statement = _statement(found["predicate"])
        if canonical(found) != text:
            raise DecodeError("", "the statement is not in canonical form; it was edited")
        parse_time(statement.created)
        parse_time(statement.expires or statement.created)
    except (DecodeError, msgspec.ValidationError) as error:
        raise DecodeError("", str(error)) from None
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DecodeError("", f"the statement lacks a part ({type(error).__name__}: {error})") from None
    return statement


def _statement(predicate: Mapping[str, Any]) -> Statement:
    notes = {item["name"]: item["annotations"] for item in predicate["configuration"]}
    samples = predicate["samples"]
    arms = {
        arm: {
            "model": notes[arm],
            "engine": notes[f"{prefix}engine"],
            "numerics": notes.get(f"{prefix}numerics"),
            "reply_format": notes.get(f"{prefix}reply-format", {"format": ""})["format"],
        }
        for arm, prefix in (("candidate", ""), ("baseline", "baseline-"))
    }
    plain = {**predicate, **{name: notes[name] for name in ("suite", "policy", "harness", "host")}, **arms}
    plain["decision"] = {name: predicate[name] for name in ("verdict", "reasons", "gates", "controls")}
    plain["samples"] = {**samples, "digest": f"sha256:{samples['digest']['sha256']}"}
    made: Statement = convert({**plain, "created": predicate["timeCreated"]}, Statement)
    return made
