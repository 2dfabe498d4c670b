"""Two engines over the same records, in numbers and in words."""

import pytest

from app.shadow.compare import ReplayTrio, agree, compare
from app.shadow.record import RecordedCall, ReplayedReply, ShadowRecord

TIMER = RecordedCall("set_timer", {"minutes": 6, "on": True})


def record(number: int, *calls: RecordedCall, id: str = "") -> ShadowRecord:
    request = {"messages": [{"role": "user", "content": f"Hello {number}!"}]}
    return ShadowRecord(
        id or f"r{number}", "2026-11-21T12:00:00+00:00", "annie", "live", False, request, calls, (), 0.1
    )


def trios(count: int, ours: ReplayedReply, theirs: ReplayedReply) -> list[ReplayTrio]:
    return [(record(n, *theirs.calls), ours, theirs) for n in range(count)]


@pytest.mark.parametrize(
    ("ours", "same"),
    [
        ([RecordedCall("set_timer", {"on": True, "minutes": 6.0})], True),
        ([RecordedCall("set_timer", {"minutes": "6", "on": True})], False),
        ([RecordedCall("set_timer", {"minutes": 6, "on": 1})], False),
        ([RecordedCall("start_timer", {"minutes": 6, "on": True})], False),
        ([TIMER, TIMER], False),
        ([], False),
    ],
)
def test_calls_agree_as_json_values(ours: list[RecordedCall], same: bool) -> None:
    assert agree(ours, [TIMER]) is same


def test_equal_calls_and_manners_are_alike() -> None:
    found = compare(
        trios(90, ReplayedReply((TIMER,)), ReplayedReply((TIMER,))), candidate="new", baseline="live"
    )
    assert found.word == "alike" and "no worse" in found.verdict
    assert (found.calls.k, found.calls.n) == (90, 90)


@pytest.mark.parametrize("records, talks", [(5, 5), (90, 1)])
def test_few_conversations_are_too_few_to_tell(records: int, talks: int) -> None:
    same = ReplayedReply((TIMER,))
    found = compare(
        [(record(n % talks, id=f"{n}"), same, same) for n in range(records)], candidate="new", baseline="live"
    )
    assert found.word == "open" and "too few records" in found.verdict


def test_other_calls_differ() -> None:
    found = compare(trios(20, ReplayedReply(), ReplayedReply((TIMER,))), candidate="new", baseline="live")
    assert found.word == "differs" and found.calls.k == 0
    assert len(found.others) == 5 and found.others[0]["candidate"] == "spoke"


def test_more_breaches_are_worse() -> None:
    bad = ReplayedReply(breaches=frozenset({"leak", "loop"}))
    found = compare(trios(12, bad, ReplayedReply()), candidate="new", baseline="live")
    assert found.word == "worse" and [*found.detectors] == ["leak", "loop"]
    assert found.detectors["leak"] == {"candidate": 12, "baseline": 0}
    seen = found.breaches
    assert (seen.only_candidate, seen.only_baseline) == (12, 0)
    assert seen.low > 0


def test_what_was_lost_on_the_way_is_not_compared() -> None:
    found = compare(
        trios(3, ReplayedReply(lost=True), ReplayedReply((TIMER,))), candidate="new", baseline="live"
    )
    assert (found.records, found.lost, found.word) == (0, 3, "open")
