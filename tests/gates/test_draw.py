"""Part of a suite for a short run: so many of each gate's prompts, the same ones for everybody."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.case import conversations
from gates.policy.check import check_policy
from gates.policy.load import load_policy
from gates.suite.draw import drawn, in_random_order
from gates.suite.load import load_suite
from tests.gates.judged import suite

SIZES = st.dictionaries(st.sampled_from(["leak", "tools", "empty"]), st.integers(1, 400))


@given(SIZES)
def test_every_gate_gets_its_prompts_as_far_as_the_suite_has_them(sizes: Mapping[str, int]) -> None:
    whole = suite()
    short = drawn(whole, sizes)
    if sizes:
        assert {gate: len(short.of(gate)) for gate in ("leak", "tools")} == {
            gate: min(sizes.get(gate, 0), len(whole.of(gate, 1))) for gate in ("leak", "tools")
        }
        assert all(case.stage == 1 for case in short.cases)
    assert short.digest == whole.digest


@given(SIZES.filter(bool), st.integers())
def test_nobody_can_draw_others_by_writing_them_elsewhere(sizes: Mapping[str, int], seed: int) -> None:
    whole = suite()
    lines = list(whole.cases)
    random.Random(seed).shuffle(lines)
    shuffled = drawn(replace(whole, cases=tuple(lines)), sizes)

    ids = {case.id for case in shuffled.cases}
    assert ids == {case.id for case in drawn(whole, sizes).cases}
    assert [case for case in lines if case.id in ids] == list(shuffled.cases)


def test_a_prompt_of_several_gates_counts_for_each() -> None:
    whole = suite()
    both = replace(whole, cases=tuple(replace(case, gates=("leak", "tools")) for case in whole.cases))
    assert len(drawn(both, {"leak": 30, "tools": 30}).cases) == 30


@pytest.mark.parametrize("law, asked", [("annie-nano-short", "annie-nano")])
def test_the_short_policy_can_decide_on_what_it_draws(law: str, asked: str) -> None:
    short, whole = load_policy(law), load_policy(asked)
    cases = load_suite(asked)
    part = drawn(cases, short.draw)

    check_policy(short, part)
    assert len(part.cases) < len(cases.cases) / 4
    critical = {name for name, gate in whole.gates.items() if gate.tier == "critical"}
    assert {name for name, gate in short.gates.items() if gate.tier == "critical"} == critical


def test_turns_of_one_conversation_belong_together() -> None:
    first, reply = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
    talks = {"later": [first, reply, first], "first": [first], "again": [first], "other": [reply, first]}

    assert conversations(talks) == {"later": "first", "first": "first", "again": "first", "other": "other"}


def test_a_sequential_run_asks_every_case_in_the_seeds_order_and_turns_together() -> None:
    whole = suite()
    hello = whole.cases[0].messages
    turn = replace(whole.cases[-1], messages=(*hello, {"role": "assistant", "content": "Hi."}, *hello))
    whole = replace(whole, cases=(*whole.cases[:-1], turn))

    orders = [[case.id for case in in_random_order(whole, seed).cases] for seed in ("a", "a", "b")]
    places = [order.index(turn.id) - order.index(whole.cases[0].id) for order in orders]
    assert orders[0] == orders[1] != orders[2] and places == [1, 1, 1]
    assert sorted(orders[2]) == sorted(case.id for case in whole.cases)
    assert {case.stage for case in in_random_order(whole, "a").cases} == {1}
