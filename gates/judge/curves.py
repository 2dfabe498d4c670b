"""Operating curves: how often a rule passes a model of a given quality, as points and as one sentence. Pure, and exact."""

from typing import Final

from gates.contracts.verdict import CurvePoint
from gates.judge.formatting import outcome_wording, percent, points
from gates.policy.policy import FloorRule
from gates.stats.binomial import tail
from gates.stats.compare import ComparePlan
from gates.stats.plans import QuantilePlan, RatePlan, ZeroPlan

Curve = tuple[tuple[CurvePoint, ...], str]

CHURN: Final = 0.02
"""The assumed share of prompts that flip in the candidate's favour by chance. Equal models then disagree
on 4 %, as one baseline asked twice does where batching is not deterministic.
"""

_FAILS: Final = (0.03, 0.02, 0.01, 0.005, 0.0025, 0.001)
_FLOORS: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
_WEAK, _GOOD = 0.02, 0.001  # failure rates that the sentence of rule A names


def floor_curve(gate: str, floor: FloorRule) -> Curve:
    """The floor rule alone; `rate` is the share of good answers."""
    curve = tuple(CurvePoint(rate, tail(floor.least, floor.of, rate)) for rate in _FLOORS)
    weak = max((p for p in curve if p.chance <= 0.5), key=lambda p: p.rate, default=curve[0])
    if floor.least == floor.of:
        does = f"{outcome_wording(gate).bads} {percent(1.0 - weak.rate)} of the time"
    else:
        does = f"{outcome_wording(gate).goods} only {percent(weak.rate)} of the time"
    return curve, f"alone would pass a model that {does} in {_share_of_runs(weak.chance)}"


def zero_curve(gate: str, plan: ZeroPlan) -> Curve:
    """Rule A; `rate` is the share of prompts that fail."""
    curve = tuple(CurvePoint(rate, plan.chance(rate)) for rate in _FAILS)
    words = f"would pass a model that {outcome_wording(gate).bads} {percent(_WEAK)} of the time"
    return curve, _weak_and_good(words, plan.chance(_WEAK), f"one at {percent(_GOOD)}", plan.chance(_GOOD))


def rate_curve(gate: str, plan: RatePlan) -> Curve:
    """Rule B; `rate` is the share of good answers."""
    curve = tuple(CurvePoint(rate, plan.chance(rate)) for rate in _around(plan.least))
    good = min(round(plan.least + 0.10, 6), (1.0 + plan.least) / 2.0)
    words = f"would pass a model that {outcome_wording(gate).goods} only {percent(plan.least)} of the time"
    return curve, _weak_and_good(words, plan.chance(plan.least), f"one at {percent(good)}", plan.chance(good))


def compare_curve(plan: ComparePlan) -> Curve:
    """Rule C; `rate` is the true loss against the baseline, at a churn of 2 %."""
    losses = [0.0, plan.margin / 2, plan.margin, 1.5 * plan.margin, 2 * plan.margin]
    curve = tuple(CurvePoint(loss, plan.chance(loss, CHURN)) for loss in losses if loss + 2 * CHURN < 1.0)
    words = f"would pass a model that is {points(plan.margin)} points worse than its baseline"
    return curve, _weak_and_good(
        words, plan.chance(plan.margin, CHURN), "an equal one", plan.chance(0.0, CHURN)
    )


def latency_curve(within: str, plan: QuantilePlan) -> Curve:
    """Rule D, absolute; `rate` is the share of requests within the limit."""
    curve = tuple(CurvePoint(rate, plan.chance(rate)) for rate in _around(plan.q))
    good = min(round(plan.q + 0.15, 6), (1.0 + plan.q) / 2.0)
    words = f"would pass an engine that keeps {within} in only {percent(plan.q)} of requests"
    return curve, _weak_and_good(words, plan.chance(plan.q), f"one at {percent(good)}", plan.chance(good))


def _around(limit: float) -> tuple[float, ...]:
    """Rates below the limit, at it, and in steps of a quarter between it and 1."""
    below = (round(rate, 6) for rate in (limit - 0.10, limit - 0.05) if rate > 0.0)
    return (*below, limit, *(round(limit + part * (1.0 - limit), 6) for part in (0.25, 0.5, 0.75)))


def _weak_and_good(words: str, weak: float, good: str, chance: float) -> str:
    return (
        f"{words} in {_share_of_runs(weak)}, and {good} in {_share_of_runs(chance).removesuffix(' of runs')}"
    )


def _share_of_runs(chance: float) -> str:
    """A probability as a share of runs; rounding never makes it 0 or 100 %."""
    if 0.0 < chance < 0.0005:
        return "fewer than 0.05 % of runs"
    return "over 99.9 % of runs" if 0.9995 <= chance < 1.0 else f"{percent(chance)} of runs"
