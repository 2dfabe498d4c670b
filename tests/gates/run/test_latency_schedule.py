"""The latency schedule: turns of the arms, silence, new prompts, two regimes; the same every time."""

from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytest

from gates.contracts.case import Sampling
from gates.contracts.dialect import Dialect
from gates.contracts.errors import RunError
from gates.run.conversation import estimate, pad_conversation
from gates.run.latency_schedule import LatencySlot, Schedule, phases, slot_of
from gates.run.planned_request import PlannedRequest
from tests.gates.run.parts import SUITE, SYSTEM, arm, case, target

PROMPTS = [case("hello"), case("fact"), case("find", tools=True)]
SMALL = Schedule(buckets=(200, 600), blocks=4)
TWO = ("latency:candidate", "latency:baseline")
THREE = (*TWO, "latency:gateway")


def asks(
    schedule: Schedule = SMALL, names: tuple[str, ...] = TWO, dialect: Dialect = "vllm"
) -> tuple[PlannedRequest, ...]:
    """The one phase of arms that are up together."""
    where = target("http://127.0.0.1:1", dialect)
    (phase,) = phases(SUITE, [arm(name, where) for name in names], PROMPTS, Sampling(), schedule)
    return phase


def measured(every: tuple[PlannedRequest, ...]) -> list[PlannedRequest]:
    return [a for a in every if a.recorded]


@pytest.mark.parametrize("names", [TWO, THREE])
def test_a_prompt_goes_round_the_arms_forth_and_back(names: tuple[str, ...]) -> None:
    rounds = [
        [a.key.arm for a in group]
        for _, group in groupby(measured(asks(names=names)), lambda a: (a.key.case, a.key.repeat // 2))
    ]

    assert all(r == r[::-1] and set(r) == set(names) and len(r) == 2 * len(names) for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1


def test_every_block_asks_every_prompt_in_every_bucket_twice_of_every_arm() -> None:
    counted = Counter((a.key.arm, a.key.case, a.key.repeat // 2) for a in measured(asks()))
    orders = {
        block: [a.key.case for a in measured(asks()) if a.key.repeat // 2 == block] for block in range(4)
    }

    assert set(counted.values()) == {2} and len(counted) == 2 * 6 * 4
    assert len({tuple(order) for order in orders.values()}) == 4


def test_arms_that_are_never_up_together_alternate_block_by_block() -> None:
    apart = replace(SMALL, together=False)
    made = phases(SUITE, [arm(name) for name in TWO], PROMPTS, Sampling(), apart)
    who = [{a.key.arm for a in phase} for phase in made]

    assert len(made) == 8 and all(len(arms) == 1 for arms in who)
    assert who[0] == who[3] == who[4] == who[7] != who[1] == who[2] == who[5] == who[6]
    assert all(not phase[0].recorded for phase in made)
    assert Counter(Counter(a.key for phase in made for a in phase if a.recorded).values()) == {1: 48}
    with pytest.raises(RunError, match="4 alternating blocks"):
        phases(SUITE, [arm()], PROMPTS, Sampling(), replace(apart, blocks=3))


def test_in_the_steady_regime_the_turn_before_is_asked_first() -> None:
    for a in measured(asks()):
        assert a.before is not None
        assert a.before["messages"] == a.request["messages"][:-2] and a.before["max_tokens"] == 1
        assert a.before["messages"][-1]["role"] == "user"
        assert a.before.get("tools") == a.request.get("tools")


@pytest.mark.parametrize(
    "dialect, field",
    [("vllm", "cache_salt"), ("sglang", "cache_salt"), ("llama-server", "cache_prompt"), ("openai", None)],
)
def test_in_the_cold_regime_nothing_may_come_from_the_cache(dialect: Dialect, field: str | None) -> None:
    every = asks(replace(SMALL, regime="cold"), dialect=dialect)
    values = [a.request.get(field) for a in every if field]

    assert all(a.before is None for a in every)
    assert not values or values == [False] * len(every) or len(set(values)) == len(every)
    assert {"cache_salt", "cache_prompt"} & every[0].request.keys() == ({field} if field else set())


def test_an_extension_goes_on_where_the_first_stage_ended() -> None:
    later = measured(asks(replace(SMALL, first_block=4)))

    assert {a.key.repeat // 2 for a in later} == {4, 5, 6, 7}
    assert {a.key for a in later}.isdisjoint(a.key for a in measured(asks()))


def test_a_sample_tells_its_slot() -> None:
    slots = {(a.key.case, a.key.repeat): slot_of(a.key.case, a.key.repeat) for a in measured(asks())}

    assert LatencySlot("find", 600, "steady", 3, 1) in slots.values()
    assert all((slot.label, slot.repeat) == key for key, slot in slots.items())
    for odd in ("hello", "hello@", "hello@x:cold", "@5:cold", "hello@500"):
        with pytest.raises(RunError, match="no sample of the latency gate"):
            slot_of(odd, 0)


# ------------------------------------------------------------------------------------------ contexts


@pytest.mark.parametrize("tokens", [200, 2000, 8000])
def test_a_conversation_grows_to_about_its_size(tokens: int) -> None:
    messages = pad_conversation(PROMPTS[0].messages, (), tokens, 4.0, 7)
    turns = [message["content"] for message in messages]

    assert 0 <= estimate(messages, ()) - tokens * 4.0 < 200
    asked = [m["content"] for m in messages if m["role"] == "user"]
    assert len(set(asked)) == len(asked) and turns[0] == SYSTEM["content"] and turns[-1] == "hello"
    assert [m["role"] for m in messages[1:]] == ["user", "assistant"] * (len(messages) // 2 - 1) + ["user"]
