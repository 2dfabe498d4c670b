"""The weighted choice: the share is kept as it is asked for, and a conversation stays on its side."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.engines.conversations import conversation
from app.engines.split import Side, TrafficSplit


def message(text: object) -> dict[str, Any]:
    return {"role": "user", "content": str(text)}


weights = st.integers(1, 99)


@given(weights, st.integers(1, 500))
def test_of_new_conversations_the_candidate_gets_its_share_to_within_one(weight: int, count: int) -> None:
    split = TrafficSplit("new", weight)
    got = Counter(split.choose(conversation([message(n)])) for n in range(count))
    assert abs(got["candidate"] - count * weight / 100) <= 0.5


@given(st.lists(weights, min_size=1, max_size=4, unique=True), st.lists(st.integers(0, 9), max_size=300))
def test_a_conversation_stays_on_its_side_whatever_comes_between(steps: list[int], turns: list[int]) -> None:
    """At every weight: `turns` are the conversations that speak, one after the other."""
    split = TrafficSplit("new")
    said: dict[int, list[Any]] = {}
    sides: dict[int, Side] = {}
    begun: Counter[int] = Counter()
    due = Counter[int]()
    for at, who in enumerate(turns):
        split.weight = sorted(steps)[at * len(steps) // len(turns)]
        if who not in said:
            begun[split.weight] += 1
        history = said.setdefault(who, [message(f"conversation {who}")])
        side = split.choose(conversation(history))
        if who not in sides:
            sides[who] = side
            due[split.weight] += side == "candidate"
        assert side == sides[who]
        history += [{"role": "assistant", "content": f"answer {at}"}, message(f"turn {at}")]
    share = sum(count * weight / 100 for weight, count in begun.items())
    assert abs(sum(due.values()) - share) <= 0.5
