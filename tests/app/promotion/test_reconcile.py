"""What is brought about at start: orphans go, what is wanted runs, and each settled model has its route."""

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
    "nothing runs after a power cut": ({"annie": "old"}, [], ["spare"], [], ["start old", "start spare", "annie route old"]),
    "what runs and is wanted is adopted": ({"annie": "old"}, [], [], ["old"], ["start old", "annie route old"]),
    "an orphan goes first": ({"annie": "old"}, [], [], ["lost", "old"], ["stop lost", "start old", "annie route old"]),
    "an operation's engines and its model's route are left to it": ({"annie": "old"}, [UNDER_WAY], ["spare"], ["old", "new"], ["start spare"]),
    "a settled model does not wait for another's": (
        {"annie": "old", "bertha": "big"}, [UNDER_WAY], [], ["new", "lost"], ["stop lost", "start big", "bertha route big"],
    ),
    "two models share an engine": ({"annie": "old", "bertha": "old"}, [], [], [], ["start old", "annie route old", "bertha route old"]),
}  # fmt: skip


@pytest.mark.parametrize("live, unfinished, resident, running, expected", CASES.values(), ids=CASES.keys())
def test_what_is_brought_about(
    live: dict[str, str],
    unfinished: list[OperationState],
    resident: list[str],
    running: list[str],
    expected: list[str],
) -> None:
    found = reconcile(live, unfinished, resident, running)
    said = [f"{effect.key.split('/')[1]} {effect.action} {effect.engine}".strip() for effect in found]
    assert said == expected
    assert len({effect.key for effect in found}) == len(found)
