"""How often a rule passes a model of a given quality, in one sentence. Pure, and exact."""

from gates.judge.formatting import outcome_wording, percent, points
from gates.policy.load import CHURN
from gates.stats.compare import ComparePlan
from gates.stats.plans import QuantilePlan, RatePlan, ZeroPlan

_WEAK, _GOOD = 0.02, 0.001  # failure rates that the sentence of rule A names


def zero_words(gate: str, plan: ZeroPlan) -> str:
    """Rule A, of models that fail on some share of prompts."""
    words = f"would pass a model that {outcome_wording(gate).bads} {percent(_WEAK)} of the time"
    return _weak_and_good(words, plan.chance(_WEAK), f"one at {percent(_GOOD)}", plan.chance(_GOOD))


def rate_words(gate: str, plan: RatePlan) -> str:
    """Rule B, of models with some share of good answers."""
    good = min(round(plan.least + 0.10, 6), (1.0 + plan.least) / 2.0)
    words = f"would pass a model that {outcome_wording(gate).goods} only {percent(plan.least)} of the time"
    return _weak_and_good(words, plan.chance(plan.least), f"one at {percent(good)}", plan.chance(good))


def compare_words(plan: ComparePlan) -> str:
    """Rule C, of models with some true loss against the baseline, at a churn of 2 %."""
    words = f"would pass a model that is {points(plan.margin)} points worse than its baseline"
    chances = plan.chance(plan.margin, CHURN), plan.chance(0.0, CHURN)
    return _weak_and_good(words, chances[0], "an equal one", chances[1])


def latency_words(within: str, plan: QuantilePlan) -> str:
    """Rule D, absolute, of engines that keep the limit in some share of requests."""
    good = min(round(plan.q + 0.15, 6), (1.0 + plan.q) / 2.0)
    words = f"would pass an engine that keeps {within} in only {percent(plan.q)} of requests"
    return _weak_and_good(words, plan.chance(plan.q), f"one at {percent(good)}", plan.chance(good))


def _weak_and_good(words: str, weak: float, good: str, chance: float) -> str:
    return (
        f"{words} in {_share_of_runs(weak)}, and {good} in {_share_of_runs(chance).removesuffix(' of runs')}"
    )


def _share_of_runs(chance: float) -> str:
    """A probability as a share of runs; rounding never makes it 0 or 100 %."""
    if 0.0 < chance < 0.0005:
        return "fewer than 0.05 % of runs"
    return "over 99.9 % of runs" if 0.9995 <= chance < 1.0 else f"{percent(chance)} of runs"
