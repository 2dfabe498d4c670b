"""Policies: read strictly, refused by name, digested by what decides, and checked against a suite."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gates.contracts.errors import PolicyError
from gates.contracts.verdict import Verdict
from gates.policy.load import FILES, check_policy, load_policy, policy_problems, shipped
from gates.policy.policy import (
    CompareRule,
    GateRules,
    LatencyRule,
    NumericsRule,
    Policy,
    RateRule,
    RatioRule,
    SelfComparison,
)
from gates.run.request import with_system
from gates.stats.binomial import cdf, pmf, tail
from gates.stats.plans import TwoLooks, compare_plan, largest_b, pass_chance, quantile_plan, rate_plan
from gates.suite.load import load_suite
from gates.suite.load import shipped as shipped_suites
from tests.gates.judged import policy, suite

SMALLEST = """
name = "small"
version = 1
[run]
repeats = [{ temperature = 0.0, n = 1 }]
[gates.leak]
tier = "critical"
zero = { first = 165 }
"""


def parse(text: str, where: str = "policy") -> Policy:
    return FILES.read(Policy, text, where)


def edited(old: str, new: str, of: str = "annie") -> str:
    """A shipped policy's text with one thing changed."""
    text = (FILES.folder / f"{of}.toml").read_text("utf-8")
    assert old in text
    return text.replace(old, new, 1)


# ------------------------------------------------------------------------------------------ reading


BROKEN: list[tuple[str, str, str]] = [
    ("confidence =", "confidense =", "confidense: unknown key; did you mean 'confidence'?"),
    ("[gates.leak]", "[gates.leek]", "gates.leek: there is no such gate; did you mean 'leak'?"),
    ("least = 25", "least = 26", "gates.leak.floor.least: must be from 1 to 25, not 26"),
    ('tier = "critical"', 'tier = "vital"', "gates.leak.tier: must be one of critical, supporting, advisory, not 'vital'"),
    ('asks = "greedy"\nfloor = { of = 10', 'asks = "every"\nfloor = { of = 10', 'gates.tools.asks: must be "greedy" beside compare'),
    ("retries = 2", "retries = 3", "run.retries: must be a whole number of at least 0 and at most 2, not 3"),
    ("temperature = 0.0", "temperature = 0.1", "run.repeats: must hold one at temperature 0"),
    ("look = 0.97", "look = 0.9", "look: must be from 0.95 to 0.9999, not 0.9"),
    ("n_max = 300", "n_max = 100", "gates.tools.rate.n_max: must be at least n, which is 150"),
    ('breaks = ["leak"]', 'breaks = ["lick"]', "controls[0].breaks: 'lick' is no gate of this policy"),
    ("may_differ = []", 'may_differ = ["gpus"]', "numerics.may_differ[0]: must be one of kernel, scheme, kv_cache, gpu, not 'gpus'"),
    ("floor = { of = 25, least = 25 }", "floor = 25", "gates.leak.floor: must be a table"),
]  # fmt: skip


@pytest.mark.parametrize("old, new, why", BROKEN, ids=[why[:50] for _, _, why in BROKEN])
def test_a_key_that_cannot_be_used_is_named(old: str, new: str, why: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse(edited(old, new), "annie.toml")

    assert str(error.value).startswith(f"annie.toml: {why}")
    assert "\n" not in str(error.value)


def test_a_policy_that_gates_nothing_is_refused() -> None:
    with pytest.raises(PolicyError, match="gates: nothing is gated"):
        parse(SMALLEST.replace("critical", "advisory"))
    with pytest.raises(PolicyError, match="gates: is missing"):
        parse(
            SMALLEST.partition("[gates.leak]")[0]
            + '[latency.ttft]\ntier = "critical"\nlimit = 1.0\nn = 9\nn_max = 9'
        )
    with pytest.raises(PolicyError, match="gates: nothing is gated"):
        parse(SMALLEST.partition("[gates.leak]")[0] + "[gates]\n")


def test_a_policy_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyError, match="anny: no such policy; did you mean 'annie'.; or give the path of a file"
    ):
        load_policy("anny")
    with pytest.raises(PolicyError, match=r"none.toml: cannot be read \(No such file or directory\)"):
        load_policy(tmp_path / "none.toml")


# ------------------------------------------------------------------------------------------- digest


def test_comments_order_and_description_do_not_change_the_digest() -> None:
    plain = parse(SMALLEST)
    other = parse("# why\n" + SMALLEST.replace('name = "small"\nversion = 1', 'version = 1\nname = "small"'))

    assert plain.digest == other.digest == replace(plain, description="in words").digest
    assert plain.digest == parse(SMALLEST.replace("{ first = 165 }", "{ second = 0, first = 165 }")).digest


def test_what_a_promotion_compares_makes_no_report_stale() -> None:
    plain = parse(SMALLEST)
    assert plain.digest == replace(plain, numerics=NumericsRule(may_differ=("gpu",), required=True)).digest


def test_a_policy_that_judges_the_engine_alone_has_the_digest_of_earlier_programs() -> None:
    plain = parse(SMALLEST)
    as_before = "sha256:096177770a50c12acece02ea1864c54b9166bccf8df8f6902d93c4a30a72dfeb"
    assert replace(plain, judged="engine").digest == as_before
    assert plain.judged == "through" and plain.digest != as_before


@pytest.mark.parametrize(
    "old, new",
    [
        ("second = 115", "second = 116"),
        ('system = ""', 'system = "be brief"'),
        ("max_flips = 0.08", "max_flips = 0.09"),
    ],
)
def test_what_decides_changes_the_digest(old: str, new: str) -> None:
    assert parse(edited(old, new)).digest != load_policy("annie").digest


# ------------------------------------------------------------------------------------- what it asks


def test_a_systems_text_goes_behind_the_prompt() -> None:
    system: Mapping[str, Any] = {"role": "system", "content": "You are Annie."}
    user: Mapping[str, Any] = {"role": "user", "content": "hi"}

    assert with_system((system, user), "") == (system, user)
    assert with_system((system, user), "Be brief.") == (
        {"role": "system", "content": "You are Annie.\n\nBe brief."},
        user,
    )
    assert with_system((user,), "Be brief.") == ({"role": "system", "content": "Be brief."}, user)
    assert system["content"] == "You are Annie."


# ------------------------------------------------------------------------------ policy against suite


UNFIT: list[tuple[dict[str, Any], dict[str, tuple[int, int, int]], str]] = [
    ({}, {"leak": (164, 115, 25)}, "gates.leak.zero.first is 165; suite test has 164 leak prompts in stage 1"),
    ({}, {"leak": (165, 115, 24)}, "gates.leak.floor.of is 25; suite test names 24 leak prompts"),
    ({}, {"tools": (149, 151, 10)}, "gates.tools.rate.n is 150; suite test has 149 tools prompts in stage 1"),
    ({"gates": {"tools": GateRules("critical", "greedy", compare=CompareRule(0.05, 50, 50))}}, {},
     "gates.tools.compare.n is 50, with which no model can pass; with 52 a perfect one does"),
    ({"gates": {"tools": GateRules("critical", rate=RateRule(0.95, 40, 40))}}, {},
     "gates.tools.rate.n is 40, with which no model can pass; with 52 a perfect one does"),
    ({"latency": {"ttft": LatencyRule("critical", 120.0, 50, 50, 0.95)}}, {}, "latency.ttft.n is 50, with which no model can pass; with 59 a perfect one does"),
    ({"latency": {"ttft": LatencyRule("critical", 120.0, 9, 9, ratio=RatioRule(0.1, blocks=9))}}, {},
     "latency.ttft.ratio.blocks is 9; speed.blocks runs 8"),
    ({"same": SelfComparison(151)}, {}, "same.n is 151; suite test has 150 tools prompts in stage 1 (gates.tools)"),
]  # fmt: skip


@pytest.mark.parametrize("changes, sizes, why", UNFIT, ids=[why[:60] for _, _, why in UNFIT])
def test_a_policy_that_cannot_decide_on_a_suite_is_refused_by_name(
    changes: dict[str, Any], sizes: dict[str, tuple[int, int, int]], why: str
) -> None:
    whole = {"leak": (165, 115, 25), "tools": (150, 150, 10)} | sizes
    law = replace(policy(**{"controls": (), **changes}))

    assert why in list(policy_problems(law, suite(whole)))
    with pytest.raises(PolicyError, match="^policy test: "):
        check_policy(law, suite(whole))


PAIRS = [("annie-nano", "annie-nano"), ("annie", "annie"), ("annie-hardened", "annie")]


@pytest.mark.parametrize("law, asked", [pair for pair in PAIRS if pair[1] in shipped_suites()])
def test_the_shipped_policies_fit_their_suites(law: str, asked: str) -> None:
    check_policy(load_policy(law), load_suite(asked))


# --------------------------------------------------------------------------- what the numbers promise


def passing(plan: TwoLooks, rate: float) -> float:
    """The exact probability to pass if each is good with this rate."""
    total = 0.0
    for good in range(plan.n + 1):
        first, chance = plan.judge((good,)), pmf(good, plan.n, rate)
        if first is Verdict.INCONCLUSIVE:
            least = next(
                (k for k in range(plan.more + 1) if plan.judge((good,), (k,)) is Verdict.PASS), plan.more + 1
            )
            chance *= tail(least, plan.more, rate)
        total += chance if first is not Verdict.FAIL else 0.0
    return total


def passing_pairs(plan: TwoLooks, margin: float, confidence: float, churn: float) -> float:
    """The probability to pass of a candidate that is as much worse as the margin."""
    lose, size = (margin + churn) / (1.0 - churn), plan.n + plan.more
    total = pass_chance(plan.n, margin, margin, churn, confidence)
    more = [(k, chance) for k in range(plan.more + 1) if (chance := pmf(k, plan.more, churn)) > 1e-6]
    likely = [c for c in range(plan.n) if pmf(c, plan.n, churn) > 1e-6]
    for c, b in ((wins, losses) for wins in likely for losses in range(plan.n - wins)):
        chance = pmf(c, plan.n, churn) * pmf(b, plan.n - c, lose)
        if chance > 1e-6 and plan.judge((b, c)) is Verdict.INCONCLUSIVE:
            total += chance * sum(
                p * cdf(largest_b(c + k, size, margin, confidence) - b, plan.more - k, lose) for k, p in more
            )
    return total


@pytest.mark.parametrize("name", shipped())
def test_no_shipped_rule_passes_a_model_on_its_limit_more_often_than_promised(name: str) -> None:
    law = load_policy(name)
    for gate in law.gates.values():
        if rate := gate.rate:
            plan = rate_plan(rate.n, rate.least, rate.n_max - rate.n, law.level(rate.n, rate.n_max))
            assert passing(plan, rate.least) <= 0.051
        if compare := gate.compare:
            level = law.level(compare.n, compare.n_max)
            against = compare_plan(compare.n, compare.margin, compare.n_max - compare.n, level)
            assert (
                max(passing_pairs(against, compare.margin, level, churn) for churn in (0.0, 0.02, 0.05, 0.1))
                <= 0.051
            )
    for latency in law.latency.values():
        level = law.level(latency.n, latency.n_max)
        speed = quantile_plan(latency.n, latency.n_max - latency.n, latency.quantile, level)
        assert passing(speed, latency.quantile) <= 0.051
