"""Rules that are judged after every conversation of a random order."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from gates.contracts.case import in_random_order
from gates.contracts.verdict import Decision, GateResult, Rule
from gates.judge.decide import decide
from gates.judge.sequential import undecided_cases
from tests.gates.judged import outcomes, policy, suite

RULES = policy(latency={}, controls=())
WHOLE = in_random_order(suite(), "seed")
LEAK, TOOLS = ([case.id for case in WHOLE.of(gate)] for gate in ("leak", "tools"))
NAMED = {case.id for case in WHOLE.cases if case.named}


def judged(bad: Collection[str] = (), missing: Collection[str] = (), **more: Any) -> Decision:
    return decide(RULES, outcomes(bad, missing=missing, of=WHOLE, sequential=True, **more))


def of(decision: Decision, gate: str, rule: Rule) -> GateResult:
    return next(one for one in decision.gates if (one.gate, one.rule) == (gate, rule))


def test_a_rule_is_decided_as_soon_as_it_can_be_and_stays_so() -> None:
    rate = of(judged(), "tools", "rate")
    assert rate.verdict == "pass" and rate.n < 20
    assert f"decided after {rate.n} conversations" in rate.sentence

    later = of(judged(bad=set(TOOLS[rate.n :])), "tools", "rate")
    assert later == rate


@pytest.mark.parametrize(
    "bad, missing, verdict",
    [
        ([], LEAK[164:], "inconclusive"),
        ([], LEAK[165:], "pass"),
        (next([name] for name in LEAK if name not in NAMED), LEAK[200:], "inconclusive"),
        (next([name] for name in LEAK if name not in NAMED), [], "pass"),
        (next([name] for name in LEAK if name in NAMED), LEAK[200:], "fail"),
        ([name for name in LEAK if name not in NAMED][:2], LEAK[200:], "fail"),
    ],
)
def test_rule_a_counts_to_its_numbers(bad: list[str], missing: list[str], verdict: str) -> None:
    zero = of(judged(set(bad), set(missing) - set(bad)), "leak", "zero")
    assert zero.verdict == verdict


def test_what_is_undecided_when_the_suite_ends_is_inconclusive_and_asks_for_nothing() -> None:
    near = judged(bad=set(TOOLS[1::3]) | set(TOOLS[2::15]), baseline_bad=set(TOOLS[2::3]))
    assert of(near, "tools", "rate").verdict == "inconclusive"
    assert "undecided after all prompts" in of(near, "tools", "rate").sentence
    assert not {case.id for case in undecided_cases(near, WHOLE)} & set(TOOLS) - NAMED


def test_turns_of_a_conversation_are_one_piece_of_evidence() -> None:
    first, *others = WHOLE.of("tools")
    talk = tuple(
        replace(case, messages=(*first.messages, *case.messages)) if case in others else case
        for case in WHOLE.cases
    )
    one = outcomes(of=in_random_order(replace(WHOLE, cases=talk), "seed"), sequential=True)

    rate = of(decide(RULES, one), "tools", "rate")
    assert rate.verdict == "inconclusive" and rate.n == len(TOOLS)


@pytest.mark.parametrize("sequential", [False, True])
def test_a_model_that_never_calls_gets_no_credit_where_no_call_is_due(sequential: bool) -> None:
    cases = [
        replace(case, expect={"calls": [{"name": "f"}] * (number % 2)}) if "tools" in case.gates else case
        for number, case in enumerate(suite().cases)
    ]
    whole = replace(suite(), cases=tuple(cases))
    wrong = {case.id for case in cases if case.expect.get("calls")}
    found = decide(
        RULES,
        outcomes(wrong, of=in_random_order(whole, "seed") if sequential else whole, sequential=sequential),
    )

    apart = {one.gate: (one.verdict, one.tier) for one in found.gates if one.gate.startswith("tools[")}
    assert apart == {"tools[calls]": ("fail", "advisory"), "tools[no call]": ("pass", "advisory")}
