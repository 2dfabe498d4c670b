"""Two engines over the same records, in numbers and in words."""

import pytest

from app.shadow.compare import Call, Comparison, ReplayedRecord, ReplayedReply, agree, compare
from tests.app.shadow.records import record

TIMER = ("set_timer", '{"minutes": 6, "on": true}')


SAME = ReplayedReply((TIMER,))


def compared(count: int, ours: ReplayedReply, theirs: ReplayedReply, words: str = "") -> Comparison:
    records = [record(words or f"Hello {n}!", id=f"r{n}") for n in range(count)]
    return compare([ReplayedRecord(one, ours, theirs) for one in records], candidate="new", baseline="live")


@pytest.mark.parametrize(
    ("ours", "same"),
    [
        ([("set_timer", '{"on":true,"minutes":6}')], True),
        ([("set_timer", '{"minutes": "6", "on": true}')], False),
        ([("set_timer", '{"minutes": 6, "on": 1}')], False),
        ([("start_timer", '{"minutes": 6, "on": true}')], False),
        ([TIMER, TIMER], False),
        ([], False),
    ],
)
def test_calls_agree_as_json_values(ours: list[Call], same: bool) -> None:
    assert agree(ours, [TIMER]) is same


def test_calls_whose_arguments_are_no_objects_agree_by_their_text() -> None:
    assert agree([("f", "[1]")], [("f", "[1]")]) and not agree([("f", "[1]")], [("f", "[2]")])


def test_equal_calls_and_manners_are_alike() -> None:
    found = compared(90, SAME, SAME)
    assert found.word == "alike"
    assert (found.same, found.calls) == (90, 90)


@pytest.mark.parametrize("records, words", [(5, ""), (90, "one conversation")])
def test_few_conversations_are_too_few_to_tell(records: int, words: str) -> None:
    found = compared(records, SAME, SAME, words)
    assert found.word == "open"


def test_other_calls_differ() -> None:
    found = compared(20, ReplayedReply(), SAME)
    assert found.word == "differs" and found.same == 0


def test_more_breaches_are_worse() -> None:
    found = compared(12, ReplayedReply(breaches=frozenset({"leak", "loop"})), ReplayedReply())
    assert found.word == "worse" and [*found.breaches] == ["any", "leak", "loop"]
    assert found.breaches["any"] == found.breaches["leak"] == {"candidate": 12, "baseline": 0}
    assert found.more_share[0] > 0


def test_nothing_to_compare_is_too_few() -> None:
    found = compared(0, SAME, SAME)
    assert (found.records, found.word, found.more_share) == (0, "open", (-1.0, 1.0))
