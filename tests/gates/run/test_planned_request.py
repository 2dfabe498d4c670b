"""What a run is going to ask: arms, cases, repeats, modes, in order, and each under its own key."""

from dataclasses import replace

from gates.policy.policy import GateRules, RunSettings, TemperatureRepeats, ZeroRule
from gates.run.request import PlannedRequest, pending_requests, plan_requests
from tests.gates.judged import LEAK, policy
from tests.gates.run.parts import arm, case, suite

HELLO, FIND = case("hello"), case("find", tools=True, gates=("tools", "leak"))
LATER = case("later", stage=2)
EVERY = suite(HELLO, FIND, LATER)


def names(asks: tuple[PlannedRequest, ...]) -> list[str]:
    return [f"{a.key.arm}/{a.key.case}/{a.key.repeat}/{a.key.mode}" for a in asks]


def test_a_stage_is_asked_streaming_and_each_tool_prompt_once_more_whole() -> None:
    assert names(plan_requests(EVERY, [arm()])) == [
        "candidate/hello/0/stream", "candidate/find/0/stream", "candidate/find/0/whole",
    ]  # fmt: skip
    assert names(plan_requests(EVERY, [arm()], stage=2)) == ["candidate/later/0/stream"]


SEED = EVERY.sampling.seed
WARM_FIRST = policy(
    run=RunSettings((TemperatureRepeats(0.7, 1), TemperatureRepeats(0.0, 1))),
    gates={"leak": LEAK, "tools": GateRules("critical", zero=ZeroRule(1))},
)


def test_repeats_have_temperatures_and_seeds_of_their_own() -> None:
    asks = plan_requests(EVERY, [arm()], policy=WARM_FIRST, gates=["tools"])

    assert [(a.key.repeat, a.key.mode) for a in asks] == [(0, "stream"), (1, "stream"), (1, "whole")]
    assert [(a.request["temperature"], a.request["seed"]) for a in asks] == [
        (0.7, SEED),
        (0.0, SEED + 1),
        (0.0, SEED + 1),
    ]


def test_a_warm_up_is_made_again_as_long_as_a_sample_of_its_arm_will_follow() -> None:
    mine, theirs = (
        plan_requests(EVERY, [arm()], gates=["tools"], greedy=True),
        plan_requests(EVERY, [arm("baseline")], greedy=True),
    )
    warm = replace(mine[0], recorded=False)

    assert pending_requests((warm, *mine, *theirs), {theirs[0].key}) == (warm, *mine, theirs[1])
    assert pending_requests((warm, *mine, *theirs), {mine[0].key}) == theirs
