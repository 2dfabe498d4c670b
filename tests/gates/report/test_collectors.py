"""Parts of a statement: tallies, failures, distributions, and the list of samples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.errors import SamplesError
from gates.contracts.verdict import CaseResult
from gates.report import collectors
from gates.report.collectors import MAX_POINTS, MAX_WHY
from gates.report.statement import GateTally
from tests.gates.report import examples

RESULTS = {
    "candidate": [
        CaseResult("a", "leak", "ok", 1, True),
        CaseResult("b", "leak", "bad", 1, True, why="tag"),
        CaseResult("c", "leak", "bad", 2, False, why="word"),
        CaseResult("c", "tools", "lost", 2, False),
    ],
    "baseline": [CaseResult("a", "leak", "ok", 1, True)],
}


def test_cases_are_counted_by_gate_and_arm_and_the_named_once_more() -> None:
    """All of a gate's cases, and of them the named."""
    assert collectors.tallies(RESULTS) == (
        GateTally("leak", "candidate", False, ok=1, bad=2, lost=0),
        GateTally("leak", "candidate", True, ok=1, bad=1, lost=0),
        GateTally("tools", "candidate", False, ok=0, bad=0, lost=1),
        GateTally("leak", "baseline", False, ok=1, bad=0, lost=0),
        GateTally("leak", "baseline", True, ok=1, bad=0, lost=0),
    )
    assert collectors.tallies(RESULTS)[0].n == 3


def test_every_case_that_was_not_ok_is_a_failure_with_its_evidence() -> None:
    """The good ones are not listed: they are what is left."""
    assert [(f.case, f.gate, f.arm, f.outcome, f.why) for f in collectors.failures(RESULTS)] == [
        ("b", "leak", "candidate", "bad", "tag"),
        ("c", "leak", "candidate", "bad", "word"),
        ("c", "tools", "candidate", "lost", ""),
    ]


@given(st.text())
def test_evidence_is_one_short_line_that_can_be_stated(why: str) -> None:
    """It quotes a model: line breaks, lone surrogates and whole essays are to be expected."""
    (failure,) = collectors.failures({"candidate": [CaseResult("a", "leak", "bad", 1, False, why=why)]})

    assert len(failure.why) <= MAX_WHY
    assert failure.why.splitlines() in ([], [failure.why])
    failure.why.encode()


@given(st.lists(st.floats(min_value=0, allow_nan=False), max_size=1000))
def test_a_distribution_keeps_its_ends_and_its_order(values: list[float]) -> None:
    """At most 201 points, the smallest and the largest among them; what never came stays infinite."""
    found = collectors.distribution("ttft", "candidate", "ms", values)

    assert found.n == len(values)
    assert len(found.points) == min(len(values), MAX_POINTS)
    assert list(found.points) == sorted(found.points)
    if values:
        assert found.points[0] == round(min(values), 3)
        assert found.points[-1] == round(max(values), 3)


def test_a_thinned_distribution_keeps_its_quantiles() -> None:
    """Of 2001 values in a row, point i of 201 is the value of rank 10 i."""
    found = collectors.distribution("ttft", "candidate", "ms", [float(i) for i in range(2001)])

    assert found.points == tuple(float(10 * i) for i in range(201))


def test_a_failed_request_is_at_the_end_of_a_distribution() -> None:
    """Infinitely late."""
    assert collectors.distribution("ttft", "candidate", "ms", [math.inf, 1.0]).points == (1.0, math.inf)


def test_the_list_of_samples_follows_the_file() -> None:
    """A line each, in order, with the outcome that was given or that a fault gives."""
    lines = examples.sample_lines({"candidate": examples.cases("reasoning")[:2]})
    lost = lines[1].replace(b'"fault":null', b'"fault":{"kind":"timeout","detail":""}')
    key = collectors.sample_index(lines[:1], {}).lines[0].key
    found = collectors.sample_index([lines[0], lost], {key: "bad"})

    assert [(line.case, line.arm, line.outcome) for line in found.lines] == [
        ("reasoning-000", "candidate", "bad"),
        ("reasoning-001", "candidate", "lost"),
    ]


@pytest.mark.parametrize("line", [b"{", b"[]", b"null", b'{"id":"a"}', b"\xff"])
def test_a_damaged_line_is_named_by_its_number(line: bytes) -> None:
    """A run that was killed leaves half a line; the ledger mends that before it comes here."""
    good = examples.sample_lines({"candidate": examples.cases("reasoning")[:1]})
    with pytest.raises(SamplesError, match="line 2"):
        collectors.sample_index([*good, line], {})


def test_a_sample_that_is_there_twice_is_refused() -> None:
    """One key, one sample."""
    good = examples.sample_lines({"candidate": examples.cases("reasoning")[:1]})
    with pytest.raises(SamplesError, match="twice"):
        collectors.sample_index([*good, *good], {})
