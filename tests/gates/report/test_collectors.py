"""Parts of a statement: tallies, failures, and the list of samples."""

import pytest

from gates.contracts.verdict import CaseResult
from gates.run import report_builder as collectors
from gates.run.report_builder import MAX_WHY

RESULTS = {
    "candidate": [
        CaseResult("a", "leak", "ok", 1, True),
        CaseResult("b", "leak", "bad", 1, True, why="tag"),
        CaseResult("c", "leak", "bad", 2, False, why="word"),
        CaseResult("c", "tools", "lost", 2, False),
    ],
    "baseline": [CaseResult("a", "leak", "ok", 1, True)],
}


@pytest.mark.parametrize("why", ["a\nb  c", "x" * 999, "\ud800", ""])
def test_evidence_is_one_short_line_that_can_be_stated(why: str) -> None:
    (failure,) = collectors.failures({"candidate": [CaseResult("a", "leak", "bad", 1, False, why=why)]})

    assert len(failure.why) <= MAX_WHY and "\n" not in failure.why
    failure.why.encode()
