"""A statement as text: an in-toto Statement v1, written as canonical JSON and read strictly. Pure.

The subject is the artefact; everything else that the verdict depends on stands under `predicate.configuration`, as in in-toto's
test-result/v0.1. A statement has exactly one text, so that derived fields cannot be edited. An inconclusive verdict is FAILED
there, so that a reader of in-toto cannot take it for a pass; `verdict` beside it says what it was.

Sources: in-toto/attestation spec/v1 statement.md, resource_descriptor.md, digest_set.md; spec/predicates/test-result.md.
"""

from collections.abc import Iterable, Mapping
from math import isinf
from typing import Any, Final

from gates.contracts import strict_json
from gates.contracts.numerics import Numerics
from gates.contracts.verdict import Decision, GateResult, Verdict
from gates.decode.decoder import DecodeError, field_hints, read
from gates.report.codec import canonical, encode
from gates.report.statement import (
    ComparedArm,
    EngineIdentity,
    ModelIdentity,
    SampleEntry,
    SampleIndex,
    Statement,
    digest_of,
    parse_time,
)

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:manners:gate-report:v1"
"""in-toto requires a URI with a version; it need not be resolvable."""

SAMPLES_FILE: Final = "samples.jsonl"

_DECISION: Final = ("reasons", "gates", "controls")
_STATEMENT: Final = (
    "tallies", "failures", "distributions", "ancestors", "data", "speed", "attachments", "gateway", "sequential", "expires",
)  # fmt: skip
"""The keys of the predicate that hold a field of the decision or of the statement under the field's name."""
_NOTES: Final = ("suite", "policy", "harness", "host")
"""Items of `configuration` that hold a field of the statement."""
_IF_ANY: Final[Mapping[str, Any]] = {"attachments": (), "gateway": {}, "sequential": ""}
"""Keys that are left out where they are empty, as in every report of a release that did not know them."""
_FORMAT: Final = "format"
_INFINITE: Final = {"inf": float("inf"), "-inf": float("-inf")}


# ------------------------------------------------------------------------------------------ write


def render(statement: Statement) -> bytes:
    """The statement's text, UTF-8. Raises DecodeError for NaN and for an invalid time."""
    for when in (statement.created, statement.expires):
        if when is not None:
            parse_time(when)
    return canonical(document(statement))


def document(statement: Statement) -> dict[str, Any]:
    """The statement as a JSON value: in-toto's Statement with our predicate."""
    model = statement.candidate.model
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": model.name, "digest": _digest_set(model.root)}],
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(statement),
    }


def _predicate(statement: Statement) -> dict[str, Any]:
    fields = {
        key: encode(value, field_hints(type(owner))[key])  # type: ignore[arg-type]
        for owner, keys in ((statement.decision, _DECISION), (statement, _STATEMENT))
        for key in keys
        if (value := getattr(owner, key)) or key not in _IF_ANY
    }
    for distribution in fields["distributions"]:  # a failed request takes for ever, which JSON cannot say
        distribution["points"] = [str(p) if isinf(p) else p for p in distribution["points"]]
    return {
        "result": "PASSED" if statement.verdict is Verdict.PASS else "FAILED",
        "verdict": statement.verdict.value,
        "configuration": _configuration(statement),
        **_tests(statement.decision.gates),
        **fields,
        "samples": {
            "name": SAMPLES_FILE,
            "digest": _digest_set(statement.samples.digest),
            "count": len(statement.samples.lines),
            "lines": encode(statement.samples.lines),
        },
        "timeCreated": statement.created,
    }


def _configuration(statement: Statement) -> list[dict[str, Any]]:
    candidate, baseline = statement.candidate, statement.baseline
    described = (
        ("candidate", candidate.model, candidate.model.root),
        ("engine", candidate.engine, candidate.engine.digest),
        ("baseline", baseline.model, baseline.model.root),
        ("baseline-engine", baseline.engine, baseline.engine.digest),
        ("suite", statement.suite, statement.suite.digest),
        ("policy", statement.policy, statement.policy.digest),
        ("harness", statement.harness, digest_of(statement.harness)),
        ("host", statement.host, digest_of(statement.host)),
        *_recorded("numerics", candidate.numerics),
        *_recorded("baseline-numerics", baseline.numerics),
        *_recorded("reply-format", candidate.reply_format and {_FORMAT: candidate.reply_format}),
        *_recorded("baseline-reply-format", baseline.reply_format and {_FORMAT: baseline.reply_format}),
    )
    return [
        {"name": name, "digest": _digest_set(digest), "annotations": encode(value)}
        for name, value, digest in described
    ]


def _recorded(name: str, stated: Any) -> tuple[tuple[str, Any, str], ...]:
    """Left out where it was not recorded, as in every report before it could be."""
    return ((name, stated, digest_of(stated)),) if stated else ()


def _digest_set(digest: str) -> dict[str, str]:
    """in-toto's DigestSet for a digest written `sha256:...`."""
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or len(value) != 64 or value.strip("0123456789abcdef"):
        raise DecodeError("", f"{digest!r:.80} is no digest of the form sha256:<64 hex digits>")
    return {algorithm: value}


def _tests(gates: tuple[GateResult, ...]) -> dict[str, list[str]]:
    """test-result's lists. Warned are passes with an alarm, and advisory rules that did not pass."""
    lists: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for gate in gates:
        if gate.verdict is Verdict.PASS:
            key = "warnedTests" if gate.alarms else "passedTests"
        else:
            key = "warnedTests" if gate.tier == "advisory" else "failedTests"
        lists[key].append(f"{gate.gate}/{gate.rule}")
    return lists


# ------------------------------------------------------------------------------------------- read


def parse(text: bytes) -> Statement:
    """The statement with this text. Raises DecodeError, one line, for any other text."""
    try:
        found = strict_json.loads(text)
    except ValueError as error:
        raise DecodeError("", f"the statement is no JSON ({error})") from None
    if not isinstance(found, dict) or found.get("_type") != STATEMENT_TYPE:
        raise DecodeError("", f"the payload is no {STATEMENT_TYPE}")
    if found.get("predicateType") != PREDICATE_TYPE:
        raise DecodeError(
            "", f"the predicate is of type {found.get('predicateType')!r:.60}, not {PREDICATE_TYPE}"
        )
    try:
        statement = _statement(found["predicate"])
    except (LookupError, TypeError, AttributeError) as error:
        raise DecodeError("", f"the statement lacks a part ({type(error).__name__}: {error})") from None
    if render(statement) != text:
        raise DecodeError(
            "", "the statement was edited, or another release wrote it: it does not follow from its values"
        )
    return statement


def _statement(predicate: Mapping[str, Any]) -> Statement:
    """The statement from the fields that carry information; `parse` checks the derived ones."""
    notes = {item["name"]: item["annotations"] for item in predicate["configuration"]}
    found = {**_IF_ANY, **predicate}
    found["distributions"] = [
        {**each, "points": [_INFINITE.get(p, p) for p in each["points"]]} for each in found["distributions"]
    ]
    samples = found["samples"]
    return Statement(
        candidate=_arm(notes, "candidate", "engine", ""),
        baseline=_arm(notes, "baseline", "baseline-engine", "baseline-"),
        **_fields(Statement, notes, _NOTES),
        decision=Decision(read(Verdict, found["verdict"], "verdict"), **_fields(Decision, found, _DECISION)),
        samples=SampleIndex(
            f"sha256:{samples['digest']['sha256']}",
            read(tuple[SampleEntry, ...], samples["lines"], "samples"),
        ),
        created=read(str, found["timeCreated"], "timeCreated"),
        **_fields(Statement, found, _STATEMENT),
    )


def _fields(owner: type, found: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: read(field_hints(owner)[key], found[key], key) for key in keys}


def _arm(notes: Mapping[str, Any], model: str, engine: str, prefix: str) -> ComparedArm:
    numerics, form = f"{prefix}numerics", f"{prefix}reply-format"
    return ComparedArm(
        read(ModelIdentity, notes[model], model),
        read(EngineIdentity, notes[engine], engine),
        read(Numerics, notes[numerics], numerics) if numerics in notes else None,
        notes[form][_FORMAT] if form in notes else "",
    )
