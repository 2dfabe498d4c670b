"""Which replica gets a request: by its conversation's cache, by load, by a hash; and what is remembered."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines.affinity import RATIO, SLACK, Balancer, Conversations, Side, TrafficSplit, conversation

SYSTEM = {"role": "system", "content": "You are Annie."}


def turns(name: str, count: int) -> list[dict[str, Any]]:
    """A conversation whose `count`th question is the last message."""
    said: list[dict[str, Any]] = [SYSTEM]
    for number in range(count):
        said += [
            {"role": "user", "content": f"{name} asks {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
    return said[:-1]


IDLE = {"a": 0, "b": 0, "c": 0}


def asked(
    balancer: Balancer, messages: list[dict[str, Any]], loads: Mapping[str, int] = IDLE
) -> tuple[str, str]:
    return balancer.choose(conversation(messages), loads)


def test_each_conversation_stays_where_it_began() -> None:
    balancer = Balancer()
    began = {name: asked(balancer, turns(name, 1)) for name in ("x", "y", "z")}
    assert {affinity for _, affinity in began.values()} == {"new"}, "a system prompt alone is no conversation"
    for count in (2, 3, 9, 9):  # also with turns between that were had elsewhere, and once more
        for name in ("z", "x", "y"):
            assert asked(balancer, turns(name, count)) == (began[name][0], "hit")
    otherwise = [*turns("x", 9)[:-1], {"role": "user", "content": "another"}]
    assert asked(balancer, otherwise) == (began["x"][0], "hit")
    otherwise[1] = {"role": "user", "content": "x asks something else"}
    assert asked(balancer, otherwise)[1] == "new", "only messages count, and every word of them"


HOMES = """
from tests.app.engines.test_affinity import Balancer, asked, turns
for name in range(200):
    print(*(asked(Balancer(), turns(f"caller {name}", 3), dict.fromkeys(up, 0))[0] for up in ("cba", "ab")))
"""


def test_another_gateway_finds_each_conversation_whoever_is_up() -> None:
    """At a later turn, in a process with other hashes, with the replicas in another order."""
    begun = [asked(Balancer(), turns(f"caller {name}", 1))[0] for name in range(200)]
    environ = {**os.environ, "PYTHONHASHSEED": "7"}
    lines = subprocess.check_output([sys.executable, "-c", HOMES], env=environ, text=True).splitlines()
    found = [line.split() for line in lines]
    assert [all_up for all_up, _ in found] == begun
    assert all(without_c == all_up for all_up, without_c in found if all_up != "c"), "no other one moves"
    assert min(Counter(begun).values()) > 40, "and the replicas get about equally many"


@pytest.mark.parametrize(
    "own, other, stays",
    [(SLACK, 0, True), (SLACK + 1, 0, False), (10 * RATIO, 10, True), (10 * RATIO + 1, 10, False)],
)
def test_a_conversation_leaves_a_replica_that_has_much_more_to_do(own: int, other: int, stays: bool) -> None:
    balancer = Balancer()
    home, _ = asked(balancer, turns("x", 1))
    away = "b" if home == "a" else "a"
    went = asked(balancer, turns("x", 2), {home: int(own), away: other})
    assert went == ((home, "hit") if stays else (away, "moved"))
    assert asked(balancer, turns("x", 3)) == (went[0], "hit"), "and stays there"
    began = asked(Balancer(), turns("x", 1), {home: int(own), away: other})
    assert began == (went[0], "new"), "nor does one begin there"
    assert asked(balancer, turns("x", 4), {"d": 5, "c": 1}) == ("c", "moved"), "nobody else takes requests"


def test_what_has_no_messages_is_spread() -> None:
    balancer = Balancer()
    assert {balancer.choose((), IDLE)[0] for _ in range(40)} == {"a", "b", "c"}
    assert {balancer.choose((), {"a": 1, "b": 0, "c": 1})[0] for _ in range(9)} == {"b"}


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    went = Conversations[str](most=2)
    for name in ("x", "y", "z"):
        went.remember(conversation(turns(name, 1)), name)
    assert [went.find(conversation(turns(name, 2))) for name in ("x", "y", "z")] == [None, "y", "z"]


# ------------------------------------------------------------------------- the weighted choice


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
