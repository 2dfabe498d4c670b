"""Two arms' states of one case as a pair: what is certain, and the most that the unknown could add."""

import pytest

from gates.contracts.verdict import Flip
from gates.judge.compare import count_pairs
from gates.judge.tally import CaseState, OutcomeCounts

OK, BAD, LOST, MISSING = (
    OutcomeCounts(ok=1),
    OutcomeCounts(bad=1),
    OutcomeCounts(lost=1),
    OutcomeCounts(missing=1),
)

# candidate, baseline: the count, lost, won, could be lost, could be won
TABLE: list[tuple[CaseState, CaseState, OutcomeCounts, int, int, int, int]] = [
    ("ok", "ok", OK, 0, 0, 0, 0),
    ("bad", "bad", OK, 0, 0, 0, 0),
    ("bad", "ok", BAD, 1, 0, 0, 0),
    ("ok", "bad", BAD, 0, 1, 0, 0),
    ("lost", "ok", LOST, 0, 0, 1, 0),
    ("lost", "bad", LOST, 0, 0, 0, 1),
    ("ok", "lost", LOST, 0, 0, 0, 1),
    ("bad", "lost", LOST, 0, 0, 1, 0),
    ("lost", "lost", LOST, 0, 0, 1, 1),
    ("missing", "ok", MISSING, 0, 0, 1, 0),
    ("missing", "bad", MISSING, 0, 0, 0, 1),
    ("ok", "missing", MISSING, 0, 0, 0, 1),
    ("bad", "missing", MISSING, 0, 0, 1, 0),
    ("missing", "missing", MISSING, 0, 0, 1, 1),
    ("lost", "missing", MISSING, 0, 0, 1, 1),
    ("missing", "lost", MISSING, 0, 0, 1, 1),
]


@pytest.mark.parametrize("ours, theirs, count, lost, won, could_lose, could_win", TABLE)
def test_a_pair_is_this_table(
    ours: CaseState,
    theirs: CaseState,
    count: OutcomeCounts,
    lost: int,
    won: int,
    could_lose: int,
    could_win: int,
) -> None:
    found = count_pairs({"a": ours}, {"a": theirs})

    assert (found.count, found.lost, found.won) == (count, lost, won)
    assert (found.could_lose, found.could_win) == (could_lose, could_win)
    assert found.flips == ((Flip("a", ours, theirs),) if count is BAD else ())  # type: ignore[arg-type]


def test_pairs_add_up() -> None:
    ours: dict[str, CaseState] = {"a": "ok", "b": "bad", "c": "ok", "d": "lost"}
    theirs: dict[str, CaseState] = {"a": "ok", "b": "ok", "c": "bad", "d": "ok", "e": "bad"}
    found = count_pairs(ours, theirs)

    assert (found.count, found.known) == (OutcomeCounts(ok=1, bad=2, lost=1), 3)
    assert (found.lost, found.won, found.could_lose, found.could_win) == (1, 1, 1, 0)
