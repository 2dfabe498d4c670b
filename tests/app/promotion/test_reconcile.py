"""What is brought about at start: orphans go, and what is wanted runs."""

import pytest

from app.promotion.state_machine import (
    OperationKind,
    OperationPhase,
    OperationPlan,
    OperationState,
    Strategy,
    reconcile,
)

UNDER_WAY = OperationState(
    OperationPlan(
        operation="op", kind=OperationKind.PROMOTE, model="annie", candidate="new", incumbent="old",
        strategy=Strategy.BLUE_GREEN, generation=1, report="r",
    ),
    OperationPhase.WARMING,
)  # fmt: skip

CASES = {
    "nothing runs after a power cut": ({"annie": "old"}, [], ["spare"], [], ["start old", "start spare"]),
    "what runs and is wanted is adopted": ({"annie": "old"}, [], [], ["old"], ["start old"]),
    "an orphan goes first": ({"annie": "old"}, [], [], ["lost", "old"], ["stop lost", "start old"]),
    "an operation's engines and its model's route are left to it": ({"annie": "old"}, [UNDER_WAY], ["spare"], ["old", "new"], ["start spare"]),
    "a settled model does not wait for another's": (
        {"annie": "old", "bertha": "big"}, [UNDER_WAY], [], ["new", "lost"], ["stop lost", "start big"],
    ),
    "two models share an engine": ({"annie": "old", "bertha": "old"}, [], [], [], ["start old"]),
}  # fmt: skip


@pytest.mark.parametrize("live, unfinished, resident, running, expected", CASES.values(), ids=CASES.keys())
def test_what_is_brought_about(
    live: dict[str, str],
    unfinished: list[OperationState],
    resident: list[str],
    running: list[str],
    expected: list[str],
) -> None:
    stops, starts = reconcile(live, unfinished, resident, running)
    assert [*(f"stop {engine}" for engine in stops), *(f"start {engine}" for engine in starts)] == expected
