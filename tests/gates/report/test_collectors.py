"""Parts of a statement: tallies, failures, and the list of samples."""

import pytest

from gates.contracts.verdict import CaseResult
from gates.report.statement import GateTally
from gates.run import report_builder as collectors
from gates.run.report_builder import MAX_WHY
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
    assert collectors.tallies(RESULTS) == (
        GateTally("leak", "candidate", False, ok=1, bad=2, lost=0),
        GateTally("leak", "candidate", True, ok=1, bad=1, lost=0),
        GateTally("tools", "candidate", False, ok=0, bad=0, lost=1),
        GateTally("leak", "baseline", False, ok=1, bad=0, lost=0),
        GateTally("leak", "baseline", True, ok=1, bad=0, lost=0),
    )
    assert collectors.tallies(RESULTS)[0].n == 3


@pytest.mark.parametrize("why", ["a\nb  c", "x" * 999, "\ud800", ""])
def test_evidence_is_one_short_line_that_can_be_stated(why: str) -> None:
    (failure,) = collectors.failures({"candidate": [CaseResult("a", "leak", "bad", 1, False, why=why)]})

    assert len(failure.why) <= MAX_WHY and "\n" not in failure.why
    failure.why.encode()


def test_the_list_of_samples_follows_the_file() -> None:
    lines = examples.sample_lines({"candidate": examples.cases("reasoning")[:2]})
    lost = lines[1].replace(b'"fault":null', b'"fault":{"kind":"timeout","detail":""}')
    key = collectors.sample_index(lines[:1], {}).lines[0].key
    found = collectors.sample_index([lines[0], lost], {key: "bad"})

    assert [(line.case, line.arm, line.outcome) for line in found.lines] == [
        ("reasoning-000", "candidate", "bad"),
        ("reasoning-001", "candidate", "lost"),
    ]
