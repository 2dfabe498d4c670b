"""A statement's text: an in-toto Statement whose every part follows from the value."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gates.contracts.numerics import Numerics
from gates.report.codec import CodecError, canonical
from gates.report.document import PREDICATE_TYPE, document, parse, render
from gates.report.statement import Attachment, Distribution, SampleIndex, Statement
from tests.gates.report import examples

EXAMPLES = (examples.passing, examples.failing, examples.inconclusive)


def edited(statement: Statement, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The canonical text of the statement's document after an edit in place."""
    found = json.loads(render(statement))
    edit(found)
    return canonical(found)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_statement_comes_back_as_it_was_written(example: Callable[[], Statement]) -> None:
    """Text to value to text: nothing is lost and nothing is added."""
    statement = example()

    assert parse(render(statement)) == statement


def test_what_computed_the_answers_comes_back_and_is_left_out_where_it_was_not_recorded() -> None:
    """Reports of older programs have none of it, and stay readable."""
    plain = examples.passing()
    for candidate in (Numerics(), Numerics(scheme="W4A16", gpu="NVIDIA H200")):
        stated = replace(plain, candidate=replace(plain.candidate, numerics=candidate))
        assert parse(render(stated)) == stated
        assert b"baseline-numerics" not in render(stated) and b'"numerics"' in render(stated)
        assert stated.candidate.engine.digest == plain.candidate.engine.digest
    assert b"numerics" not in render(plain)


def test_what_is_attached_and_what_older_releases_stated_comes_back() -> None:
    """Both are left out where there is none, so that a report of before has its bytes still."""
    plain = examples.passing()
    old = {"name": "bfcl", "tallies": [{"kind": "simple", "n": 3, "low": -0.5, "high": 0.0}]}
    whole = replace(plain, attachments=(Attachment("ifeval.json", examples.sha("a")),), beside=(old,))

    assert parse(render(whole)) == whole
    assert b"attachments" not in render(plain) and b"beside" not in render(plain)
    with pytest.raises(CodecError, match=r"attachments\[0\].name: must be a plain file name"):
        parse(edited(whole, lambda d: d["predicate"]["attachments"][0].update(name="../x")))


def test_it_is_an_in_toto_statement_about_the_artefact() -> None:
    """The four fields of Statement v1, and the subject by its root digest."""
    statement = examples.passing()
    found = document(statement)

    assert found.keys() == {"_type", "subject", "predicateType", "predicate"}
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    root = statement.candidate.model.root.removeprefix("sha256:")
    assert found["subject"] == [{"name": "annie-9b-nvfp4", "digest": {"sha256": root}}]


def test_every_configuration_is_a_resource_descriptor() -> None:
    """in-toto asks each for a digest (or a uri, or content); names are there once."""
    descriptors = document(examples.passing())["predicate"]["configuration"]

    assert all(len(d["digest"]["sha256"]) == 64 for d in descriptors)
    assert [d["name"] for d in descriptors] == [
        "candidate", "engine", "baseline", "baseline-engine", "suite", "policy", "harness", "host",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "example, result",
    [(examples.passing, "PASSED"), (examples.failing, "FAILED"), (examples.inconclusive, "FAILED")],
)
def test_only_a_pass_is_passed(example: Callable[[], Statement], result: str) -> None:
    """What is inconclusive is FAILED for who knows only test-result, and says of itself what it is."""
    statement = example()

    assert document(statement)["predicate"]["result"] == result
    assert document(statement)["predicate"]["verdict"] == statement.verdict.value


def test_an_alarm_and_an_advisory_rule_are_warnings() -> None:
    """They stand in warnedTests, neither passed without a word nor failed."""
    predicate = document(examples.passing())["predicate"]

    assert predicate["warnedTests"] == ["verbosity/rate", "speakable/compare"]
    assert predicate["failedTests"] == []


EDITS: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("another type", lambda d: d.update(_type="https://in-toto.io/Statement/v0.1"), "no https://in-toto.io/Statement/v1"),
    ("another predicate", lambda d: d.update(predicateType="urn:other"), f"not {PREDICATE_TYPE}"),
    ("another subject", lambda d: d["subject"][0]["digest"].update(sha256="0" * 64), "statement.subject"),
    ("one more subject", lambda d: d["subject"].append(d["subject"][0]), "statement.subject"),
    ("a better result", lambda d: d["predicate"].update(result="PASSED"), "statement.predicate.result"),
    ("a test moved", lambda d: d["predicate"]["passedTests"].append(d["predicate"]["failedTests"].pop()), "Tests"),
    ("another engine's digest", lambda d: d["predicate"]["configuration"][1]["digest"].update(sha256="0" * 64), r"configuration\[1\].digest"),
    ("an edited flag", lambda d: d["predicate"]["configuration"][1]["annotations"]["argv"].pop(), r"configuration\[1\].digest"),
    ("an unknown key", lambda d: d["predicate"].update(note="x"), "statement.predicate.note"),
    ("a lost part", lambda d: d["predicate"].pop("gates"), "lacks a part"),
    ("a lost descriptor", lambda d: d["predicate"]["configuration"].pop(), "lacks a part"),
    ("a verdict of none", lambda d: d["predicate"].update(verdict="maybe"), "verdict: must be one of"),
    ("a wrong count", lambda d: d["predicate"]["samples"].update(count=1), "samples.count"),
    ("a time of no form", lambda d: d["predicate"].update(timeCreated="2026-11-21 09:30"), "no time of the form"),
    ("a month of one digit", lambda d: d["predicate"].update(timeCreated="2026-1-21T09:30:15Z"), "no time of the form"),
    ("a predicate of a list", lambda d: d.update(predicate=[]), "lacks a part"),
]  # fmt: skip


@pytest.mark.parametrize("edit, message", [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_an_edited_statement_is_refused_by_its_place(
    edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    """What follows from other fields cannot say otherwise, and the line names where it does."""
    with pytest.raises(CodecError, match=message) as caught:
        parse(edited(examples.failing(), edit))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b"{" + b"9" * 5000]
)
def test_what_is_no_statement_is_refused(text: bytes) -> None:
    """Cut off, empty, too deep, or another encoding: one clear refusal."""
    with pytest.raises(CodecError):
        parse(text)


def test_another_layout_of_the_same_values_is_refused() -> None:
    """A text has one form, so that its digest names it."""
    with pytest.raises(CodecError, match="its layout"):
        parse(json.dumps(json.loads(render(examples.passing()))).encode())


def test_an_infinite_latency_can_be_stated() -> None:
    """A reply that never came is infinitely late, and the report says so."""
    statement = examples.inconclusive()

    assert any(math.inf in timing.points for timing in statement.distributions)
    assert parse(render(statement)).distributions == statement.distributions


def test_a_digest_of_another_form_cannot_be_stated() -> None:
    """An artefact is named by sha256 and 64 hex digits, or the report is not written."""
    statement = examples.passing()
    with pytest.raises(CodecError, match="no digest"):
        render(replace(statement, samples=SampleIndex("md5:0", ())))


def test_nan_cannot_be_stated() -> None:
    """Nothing measured is no number."""
    timing = Distribution("ttft", "candidate", "ms", 1, (math.nan,))
    with pytest.raises(CodecError, match="cannot be written"):
        render(replace(examples.passing(), distributions=(timing,)))


def test_an_engines_digest_follows_its_flags_and_not_its_name() -> None:
    """Two names for one engine are one engine; one flag more is another."""
    engine = examples.CANDIDATE.engine

    assert replace(engine, name="other").digest == engine.digest
    assert replace(engine, argv=(*engine.argv, "--seed", "1")).digest != engine.digest
    assert replace(engine, environment={"A": "b"}).digest != engine.digest


def test_three_thousand_samples_stay_near_a_megabyte() -> None:
    """Every sample is a line of about 200 bytes: the whole evidence can be uploaded to promote."""
    statement = examples.passing()
    lines = statement.samples.lines
    many = replace(statement, samples=SampleIndex(statement.samples.digest, (*lines, *lines)[:3000]))

    assert len(render(many)) < 600_000
