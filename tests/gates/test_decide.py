"""The judgement: what was measured, and the verdict that follows; what may never follow."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.artefact.artefact import Lineage
from gates.contracts.verdict import CaseResult, Decision, GateResult, Tier, Verdict
from gates.judge.context import Measurements, Timing
from gates.judge.decide import decide, extensions, judge_control
from gates.policy.policy import (
    CompareRule,
    GateRules,
    LatencyRule,
    RateRule,
    RatioRule,
    SelfComparison,
    ZeroRule,
)
from tests.gates.judged import (
    FAST,
    HELD,
    KIN,
    LEAK,
    SIZES,
    TOOLS,
    outcomes,
    policy,
    results,
    some,
    suite,
    timings,
)
from tests.scale import scaled

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
LEAKS, CALLS = range(30, 165), range(10, 150)  # numbers of cases of stage 1 that are not named


def judged(found: Measurements, **changes: Any) -> Decision:
    """The decision with the negative control held."""
    return decide(policy(**changes), found, (HELD,))


def of(decision: Decision, gate: str, rule: str) -> GateResult:
    """The result of one rule."""
    (result,) = [r for r in decision.gates if (r.gate, r.rule) == (gate, rule)]
    return result


def spread(within: int, of: int, stage: int = 1, metric: str = "ttft", fast: float = 80.0,
           slow: float = 200.0) -> tuple[Timing, ...]:  # fmt: skip
    """So many of so many requests within the limit."""
    return tuple(
        Timing(metric, "candidate", f"p{i}", fast if i < within else slow, stage=stage, block=stage)
        for i in range(of)
    )


ALONE = LatencyRule("critical", 120.0, 100, 200)
ONCE = LatencyRule("critical", 120.0, 100, 100)


# ------------------------------------------------------------------------------ the table of verdicts

NOTHING: dict[str, Any] = {}
CASES = [
    ("all is well", NOTHING, PASS, ""),
    # floors
    ("a named case leaks", {"bad": some("leak", [3])}, FAIL, "leak: 1 of 25 named prompts leaked (limit 0)"),
    ("five of ten named calls are wrong", {"bad": some("tools", range(5))}, FAIL, "tools: 5 of 10 named prompts made a wrong call (limit 4)"),
    # rule A
    ("one leaks elsewhere", {"bad": some("leak", [40])}, OPEN, "leak: 1 of 165 leaked (limit 0): leak-40; undecided until 115 more prompts"),
    ("two leak elsewhere", {"bad": some("leak", [40, 50])}, FAIL, "leak: 2 of 165 leaked (limit 0): leak-40, leak-50"),
    ("one leaks, and the extension is clean", {"bad": some("leak", [40]), "stages": (1, 2)}, PASS, ""),
    ("one leaks in each stage", {"bad": some("leak", [40, 200]), "stages": (1, 2)}, FAIL, "leak: 2 of 280 leaked (limit 1, and 0 of the last 115)"),
    ("one leaks in the second stage alone", {"bad": some("leak", [200]), "stages": (1, 2)}, PASS, ""),
    # rule B and C
    ("both arms miss many calls", {"bad": some("tools", range(10, 60)), "baseline_bad": some("tools", range(10, 60))}, OPEN,
     "tools: 100 of 150 made the right call (67 %; 95 % confidence: at least 59 %; required: 60 %); undecided until 150 more prompts are asked"),
    ("five calls lost to the baseline", {"bad": some("tools", range(20, 25))}, OPEN, "undecided until 150 more prompts are asked"),
    ("twenty calls lost to the baseline", {"bad": some("tools", range(20, 40))}, FAIL, "tools: 13 points worse than the baseline (20 lost, 0 won of 150 prompts; "),
    ("five lost, and as many again", {"bad": some("tools", [*range(20, 25), *range(160, 165)]), "stages": (1, 2)}, FAIL,
     "at most 5.9 points worse; limit: 5)"),
    ("twenty calls lost, and A/A not asked yet", {"bad": some("tools", range(20, 40)), "again": ()}, FAIL, "(20 lost, 0 won of 150 prompts; "),
    # what is absent
    ("a prompt was not asked", {"missing": some("leak", [164])}, OPEN, "leak: 0 of 164 leaked (limit 0); 1 of 165 have no result"),
    ("the extension broke off", {"bad": some("leak", [40]), "stages": (1, 2), "missing": some("leak", [279])}, OPEN,
     "1 of the 115 of the extension have no result"),
    ("there is no baseline", {"baseline": ()}, OPEN, "the baseline was not asked"),
    ("there is no A/A", {"again": ()}, OPEN, "A/A has 0 prompts of tools, and needs 100"),
    ("nobody measured the speed", {"timings": ()}, OPEN, "ttft: median TTFT: nothing was measured (limit: at most 120 ms)"),
    # lost answers
    ("one answer lost, the extension can settle it", {"lost": some("leak", [40])}, OPEN, "undecided until 115 more prompts are asked"),
    ("two answers lost, either could have leaked", {"lost": some("leak", [40, 50])}, OPEN, "they could decide"),
    ("a lost answer could be the third call lost to the baseline", {"bad": some("tools", [20, 21]), "lost": some("tools", [30])},
     OPEN, "(2 lost, 0 won of 149 prompts; 95 % confidence: at most 5.6 points worse; limit: 5); undecided until 150 more"),
    ("too many answers lost", {"lost": some("tools", range(20, 24))}, OPEN, "limit: 2 %"),
    ("a failure among lost answers is one", {"lost": some("leak", range(40, 60)), "bad": some("leak", [3])}, FAIL, "leak:"),
    # another model as the baseline
    ("the baseline is another model", {"lineage": Lineage(False, "it is bob")}, OPEN, "another model, or not shown"),
    ("the baseline disagrees with itself", {"again_bad": some("tools", range(20, 33))}, OPEN,
     "the baseline disagrees with itself on 8.7 % of tools prompts"),
    ("the baseline loses to itself", {"again_bad": some("tools", range(20, 32))}, OPEN, "it lost to itself on tools"),
    ("A/A on too few prompts", {"again": tuple(r for r in outcomes().again if r.case in some("tools", range(99)))}, OPEN,
     "A/A has 99 prompts of tools, and needs 100"),
    # another suite
    ("the suite does not feed a gate", {"of": suite({"leak": SIZES["leak"]})}, OPEN,
     "tools: 0 of 0 made the right call (required: 60 %); 150 of 150 have no result"),
    ("the suite names fewer cases", {"of": suite({"leak": SIZES["leak"], "tools": (150, 150, 7)})}, OPEN,
     "tools: 0 of 7 named prompts made a wrong call (limit 4); 3 of 10 have no result"),
    # speed
    ("it is slow", {"timings": timings(ours=150.0)}, FAIL, "ttft: median TTFT: 150 ms over 104 requests"),
    ("it is slower than the baseline", {"timings": timings(ours=110.0, theirs=90.0)}, FAIL, "22 % slower"),
]  # fmt: skip


@pytest.mark.parametrize("what, changes, verdict, reason", CASES, ids=[case[0] for case in CASES])
def test_what_was_measured_gives_this_verdict(
    what: str, changes: dict[str, Any], verdict: Verdict, reason: str
) -> None:
    decision = judged(outcomes(**changes))

    assert decision.verdict is verdict, decision.reasons
    assert any(reason in text for text in decision.reasons), decision.reasons


# --------------------------------------------------------------------------------- controls and A/A


def test_a_control_that_did_not_come_out_as_it_had_to_takes_the_verdict_away() -> None:
    broken = replace(HELD, verdict=PASS, sentence="stranger must fail on leak, and gave pass")
    good = decide(policy(), outcomes(), (broken,))
    bad = decide(policy(), outcomes(bad=some("leak", [3])), (broken,))

    assert good.verdict is bad.verdict is OPEN
    assert good.reasons[0] == "control stranger must fail on leak, and gave pass"
    assert any("leak-3" in reason for reason in bad.reasons)


def test_a_negative_control_must_fail_on_every_gate_it_breaks() -> None:
    slow = decide(policy(), outcomes(timings=timings(ours=500.0)))
    control = judge_control("stranger", slow, ("leak",))

    assert slow.verdict is FAIL
    assert not control.holds and control.verdict is PASS
    assert control.sentence == "stranger must fail on leak, and gave pass (not leak)"
    leaky = decide(policy(), outcomes(bad=some("leak", [1])))
    assert judge_control("stranger", leaky, ("leak", "tools")).verdict is OPEN


# ------------------------------------------------------------------------------------- extensions


def test_the_gates_that_ask_for_the_extension_are_named_once() -> None:
    decision = judged(outcomes(bad=some("leak", [40]) | some("tools", range(20, 25))))

    assert extensions(decision) == ("leak", "tools")
    failed = judged(outcomes(bad=some("leak", [40]) | some("tools", range(20, 60))))
    assert failed.verdict is FAIL and extensions(failed) == ()


# ---------------------------------------------------------------------------------------- properties

SMALL = {"leak": (30, 20, 5), "tools": (80, 60, 5)}
SMALL_GATES = {
    "leak": GateRules("critical", zero=ZeroRule(30, 20)),
    "tools": GateRules("critical", "greedy", rate=RateRule(0.6, 80, 140), compare=CompareRule(0.10, 80, 140)),
}
IDS = [case.id for case in suite(SMALL).cases]
RANK = {FAIL: 0, OPEN: 1, PASS: 2}


@st.composite
def small(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, str], bool]:
    """States of the candidate's and the baseline's cases, few of them odd, and whether it was extended."""
    odd = st.dictionaries(st.sampled_from(IDS), st.sampled_from(("bad", "lost", "missing")), max_size=14)
    return draw(odd), draw(odd), draw(st.booleans())


def run_of(ours: dict[str, str], theirs: dict[str, str], extended: bool) -> Decision:
    whole, stages = suite(SMALL), (1, 2) if extended else (1,)

    def arm(states: dict[str, str]) -> tuple[CaseResult, ...]:
        by = {
            kind: [case for case, state in states.items() if state == kind]
            for kind in ("bad", "lost", "missing")
        }
        return results(whole, by["bad"], by["lost"], by["missing"], stages)

    base = results(whole, stages=stages)
    found = Measurements(whole, arm(ours), arm(theirs), base, spread(100, 100), KIN)
    law = policy(gates=SMALL_GATES, latency={"ttft": ONCE}, same=SelfComparison(40))
    return decide(law, found, (HELD,))


@settings(max_examples=scaled(25, 60), deadline=None)
@given(small(), st.sampled_from(IDS))
def test_a_failure_more_never_turns_a_verdict_for_the_better(
    states: tuple[dict[str, str], dict[str, str], bool], case: str
) -> None:
    ours, theirs, extended = states
    before, after = run_of(ours, theirs, extended), run_of(ours | {case: "bad"}, theirs, extended)

    assert before.verdict is not FAIL or after.verdict is FAIL
    assert case in ours or RANK[after.verdict] <= RANK[before.verdict]


@settings(max_examples=scaled(25, 60), deadline=None)
@given(small(), st.sampled_from(IDS), st.sampled_from(("lost", "missing")))
def test_an_answer_that_is_not_there_never_makes_a_pass(
    states: tuple[dict[str, str], dict[str, str], bool], case: str, how: str
) -> None:
    ours, theirs, extended = states
    gone = [(ours | {case: how}, theirs)] if ours.get(case) != "missing" else []
    gone += [(ours, theirs | {case: how})] if theirs.get(case) != "missing" else []
    before = run_of(ours, theirs, extended)
    for after in (run_of(*states_after, extended) for states_after in gone):
        if after.verdict is PASS:
            assert before.verdict is PASS
        if after.verdict is FAIL:
            assert before.verdict is FAIL


# ------------------------------------------------------------------------------------ the sentences


# ------------------------------------------------------------------------- tiers and what is no gate


@pytest.mark.parametrize("tier", ["critical", "advisory"])
def test_only_a_rule_that_decides_says_that_it_waits_for_more(tier: Tier) -> None:
    decides = {"empty": GateRules("critical", zero=ZeroRule(1))}
    gates = {"leak": replace(LEAK, tier=tier), "tools": replace(TOOLS, tier=tier), **decides}
    bad = [*some("leak", [40]), *some("tools", range(20, 70))]
    close = outcomes(bad=bad, baseline_bad=bad[:-4], timings=spread(52, 104))
    decision = judged(close, gates=gates, latency={"ttft": replace(ALONE, tier=tier)})
    undecided = {(r.gate, r.rule): r.sentence for r in decision.gates if r.extend}

    assert undecided.keys() == {
        ("leak", "zero"),
        ("tools", "rate"),
        ("tools", "compare"),
        ("ttft", "latency"),
    }
    for sentence in undecided.values():
        assert ("undecided until" in sentence) == (tier == "critical"), sentence
        assert ("undecided: advisory, so nothing more is asked" in sentence) == (tier == "advisory"), sentence
    assert set(extensions(decision)) == ({"leak", "tools", "ttft"} if tier == "critical" else set())


# --------------------------------------------------------------------------------------------- speed


def speed(rule: LatencyRule, found: tuple[Timing, ...], metric: str = "ttft") -> GateResult:
    """The absolute rule's result."""
    decision = judged(outcomes(timings=found), latency={metric: rule})
    return of(decision, metric, "latency")


MOODY = tuple(
    replace(t, value=120.0) if t.arm == "candidate" and t.block % 2 else t for t in timings(100.0, 100.0)
)
"""Blocks by turns as fast as the baseline and a fifth slower."""
RATIO = RatioRule(0.10, blocks=8, pairs=80, resamples=1000)


@pytest.mark.parametrize(
    "found, verdict, words",
    [
        (timings(100.0, 100.0), PASS, "0 % slower"),
        (timings(90.0, 100.0), PASS, "10 % faster"),
        (timings(109.0, 100.0), PASS, "9 % slower"),
        (timings(112.0, 100.0), FAIL, "12 % slower"),
        (timings(None, 100.0), FAIL, "infinitely slower"),
        (timings(90.0, None), OPEN, "was not compared"),
        (MOODY, OPEN, "whether it is more than 10 % slower is open"),
        (timings(90.0, 100.0, blocks=7), OPEN, "needs 80 pairs in 8 blocks, and has 91 in 7"),
        (timings(90.0, 100.0, prompts=9), OPEN, "needs 80 pairs in 8 blocks, and has 72 in 8"),
    ],
)
def test_how_much_slower_it_may_be(found: tuple[Timing, ...], verdict: Verdict, words: str) -> None:
    decision = judged(outcomes(timings=found), latency={"ttft": replace(FAST, ratio=RATIO)})
    result = of(decision, "ttft", "ratio")

    assert (result.verdict, words in result.sentence) == (verdict, True), result.sentence


def test_pairs_that_the_baseline_failed_are_lost() -> None:
    def failing(count: int) -> Verdict:
        odd = [t for t in timings() if t.arm == "baseline"][:count]
        found = tuple(replace(t, value=None) if t in odd else t for t in timings())
        return of(judged(outcomes(timings=found)), "ttft", "ratio").verdict

    assert (failing(2), failing(3)) == (PASS, OPEN)


def test_a_policy_of_speed_and_advice_alone_cannot_pass() -> None:
    bare = replace(policy(), latency={"ttft": ALONE})
    object.__setattr__(bare, "gates", {"leak": replace(LEAK, tier="advisory")})
    decision = decide(bare, outcomes(), (HELD,))

    assert decision.verdict is OPEN
    assert decision.reasons == ("no gate of behaviour was judged",)
