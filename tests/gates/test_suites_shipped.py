"""The shipped suites are fit to judge by; that the policies' plans find their prompts is `test_policy`'s."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.case import drawn, in_random_order
from gates.detect.answers import find_wrong_answer
from gates.policy.load import check_policy, load_policy
from gates.suite.contamination import prompt_of
from gates.suite.load import load_suite, shipped
from tests.gates.judged import suite as small_suite

NAMES = shipped()
suite = cache(load_suite)

# What was asked of which model must stay known: another digest needs another version.
DIGESTS = {
    ("annie", 1): "sha256:61f5663e0c256ee35d961f06bf37315efd2e103deaa12e2af5718c2fd00084da",
    ("annie-nano", 1): "sha256:0576f702b11d41d21ba53e290fa596c956cdbca77ee48877a65a31eee0cbe8dc",
    ("annie-nano", 2): "sha256:63250076a343532cc2557d764ca0388ae041ad87190b312cc42af21bf062cb0a",
}


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_right_when_said_and_not_by_saying_the_question_again(name: str) -> None:
    for case in suite(name).cases:
        if answer := case.expect.get("answer"):
            said = [*answer.get("any", ()), *([f"{answer['number']:g}"] if "number" in answer else [])]
            assert [text for text in said if find_wrong_answer(f"{text}.", answer)] == [], case.id
            assert find_wrong_answer(prompt_of(case), answer), case.id


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_that_changed_has_another_version(name: str) -> None:
    assert DIGESTS[name, suite(name).version] == suite(name).digest


DRAWN = st.dictionaries(st.sampled_from(["leak", "tools", "empty"]), st.integers(1, 400))


@given(DRAWN)
def test_every_gate_gets_its_prompts_as_far_as_the_suite_has_them(sizes: Mapping[str, int]) -> None:
    whole = small_suite()
    short = drawn(whole, sizes)
    if sizes:
        assert {gate: len(short.of(gate)) for gate in ("leak", "tools")} == {
            gate: min(sizes.get(gate, 0), len(whole.of(gate, 1))) for gate in ("leak", "tools")
        }
        assert all(case.stage == 1 for case in short.cases)
    assert short.digest == whole.digest


@pytest.mark.parametrize("law, asked", [("annie-nano-short", "annie-nano"), ("annie-short", "annie")])
def test_the_short_policy_can_decide_on_what_it_draws(law: str, asked: str) -> None:
    short, whole = load_policy(law), load_policy(asked)
    cases = load_suite(asked)
    part = drawn(cases, short.draw)

    check_policy(short, part)
    assert len(part.cases) < len(cases.cases) / 4
    critical = {name for name, gate in whole.gates.items() if gate.tier == "critical"}
    assert {name for name, gate in short.gates.items() if gate.tier == "critical"} == critical


def test_a_sequential_run_asks_every_case_in_the_seeds_order_and_turns_together() -> None:
    whole = small_suite()
    hello = whole.cases[0].messages
    turn = replace(whole.cases[-1], messages=(*hello, {"role": "assistant", "content": "Hi."}, *hello))
    whole = replace(whole, cases=(*whole.cases[:-1], turn))

    orders = [[case.id for case in in_random_order(whole, seed).cases] for seed in ("a", "a", "b")]
    places = [order.index(turn.id) - order.index(whole.cases[0].id) for order in orders]
    assert orders[0] == orders[1] != orders[2] and places == [1, 1, 1]
    assert sorted(orders[2]) == sorted(case.id for case in whole.cases)
    assert {case.stage for case in in_random_order(whole, "a").cases} == {1}
