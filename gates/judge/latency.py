"""Rule D: how fast, by itself and against the baseline. Pure.

A request that failed is the slowest of all. Speed decides like any other gate, beside behaviour
and never against it: a broken model is often a fast one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, inf, isinf, log, log1p

from gates.contracts.verdict import GateResult, Interval, Verdict
from gates.judge.context import Docket
from gates.judge.curves import of_latency
from gates.judge.outcomes import Timing
from gates.judge.tally import Settled
from gates.judge.words import method, percent, plural, rounded
from gates.policy.rules import Latency, Ratio
from gates.policy.values import UNITS
from gates.stats.bootstrap import Median, Pair, median_log_ratio
from gates.stats.quantile import QuantilePlan, lower_rank, upper_rank

_NAMES = {"ttft": "TTFT", "decode": "decode rate", "first_sentence": "time to the first sentence"}


def judge_latency(docket: Docket, metric: str, rule: Latency) -> Iterator[GateResult]:
    """The absolute rule, of each bucket or of all requests together."""
    ours = [t for t in docket.outcomes.timings if t.metric == metric and t.arm == "candidate"]
    if not rule.per_bucket:
        yield _absolute(docket, metric, metric, rule, ours)
        return
    for bucket in sorted({t.bucket for t in ours}) or [""]:
        label = f"{metric}[{bucket}]"
        yield _absolute(docket, metric, label, rule, [t for t in ours if t.bucket == bucket])


def _absolute(
    docket: Docket, metric: str, label: str, rule: Latency, timings: Sequence[Timing]
) -> GateResult:
    # Slowness: a time as it is, a rate negated, so that large is slow and a failure is the largest.
    sign = -1.0 if metric == "decode" else 1.0
    first, second = (
        sorted(inf if t.value is None else sign * t.value for t in timings if t.stage == stage)
        for stage in (1, 2)
    )
    n = max(rule.n, len(first))
    more = max(rule.n_max - n, len(second)) if rule.n_max > rule.n else 0
    plan = QuantilePlan(n, more, rule.quantile, docket.policy.level(rule.n, rule.n_max))
    within, late = (sum(slow <= sign * rule.limit for slow in values) for values in (first, second))
    settled = _settle(docket, plan, (len(first), within), (len(second), late), timings)
    decided = len(first) == n and plan.judge(within) is not Verdict.INCONCLUSIVE
    seen = first if decided else sorted(first + second)
    value = _quantile(seen, rule.quantile)
    keeps = f"{'at least' if metric == 'decode' else 'at most'} {rule.limit:g} {UNITS[metric]}"
    curve, words = of_latency(keeps, plan)
    return GateResult(
        gate=label,
        rule="latency",
        tier=rule.tier,
        verdict=settled.verdict,
        n=len(seen),
        bad=len(seen) - sum(slow <= sign * rule.limit for slow in seen),
        estimate=None if value is None or isinf(value) else sign * value,
        interval=_interval(docket, rule, seen, sign),
        limit=rule.limit,
        unit=UNITS[metric],
        sentence=_sentence(docket, metric, rule, seen, settled, more),
        extend=settled.extend,
        curve=curve,
        curve_words=words,
    )


def _settle(
    docket: Docket,
    plan: QuantilePlan,
    first: tuple[int, int],
    second: tuple[int, int],
    timings: Sequence[Timing],
) -> Settled:
    """(timed, within the limit) of both stages against the plan; what is not timed is unknown."""
    extended = second[0] > 0 and plan.more > 0
    missing, late_missing = plan.n - first[0], plan.more - second[0]
    at_best = plan.judge(first[1] + missing, second[1] + late_missing if extended else None)
    if at_best is Verdict.FAIL:
        return Settled(Verdict.FAIL)
    if missing:
        told = "; ".join(
            filter(None, (f"{first[0]} of {plan.n} requests were timed", docket.outcomes.uncounted))
        )
        return Settled(Verdict.INCONCLUSIVE, why=told)
    failed = sum(t.value is None for t in timings)
    if failed > docket.policy.run.max_lost * len(timings):
        share = percent(docket.policy.run.max_lost)
        return Settled(
            Verdict.INCONCLUSIVE, why=f"{failed} of {len(timings)} requests failed; at most {share} may"
        )
    verdict = plan.judge(first[1], second[1] if extended else None)
    if verdict is Verdict.INCONCLUSIVE:
        return Settled(verdict, extend=True)
    if extended and late_missing and plan.judge(first[1]) is Verdict.INCONCLUSIVE:
        return Settled(Verdict.INCONCLUSIVE, why=f"{second[0]} of {plan.more} more requests were timed")
    return Settled(verdict)


def _quantile(slowness: Sequence[float], q: float) -> float | None:
    """The middle of the two values that hold the q-quantile between them."""
    if not slowness:
        return None
    at = q * (len(slowness) - 1)
    low, part = int(at), at - int(at)
    if not part or slowness[low] == slowness[low + 1]:
        return slowness[low]
    return slowness[low] * (1.0 - part) + slowness[low + 1] * part


def _interval(docket: Docket, rule: Latency, slowness: Sequence[float], sign: float) -> Interval | None:
    confidence, level = docket.policy.confidence, docket.policy.level(rule.n, rule.n_max)
    ranks = [rank(len(slowness), rule.quantile, level) for rank in (lower_rank, upper_rank)]
    fast, slow = (None if r is None or isinf(slowness[r - 1]) else sign * slowness[r - 1] for r in ranks)
    if fast is None and slow is None:
        return None
    low, high = (fast, slow) if sign > 0 else (slow, fast)
    return Interval(low, high, confidence, method("order statistic", level, confidence))


def _sentence(
    docket: Docket, metric: str, rule: Latency, seen: Sequence[float], settled: Settled, more: int
) -> str:
    sign, unit = (-1.0 if metric == "decode" else 1.0), UNITS[metric]
    which = "median" if rule.quantile == 0.5 else f"{percent(rule.quantile)} quantile"
    value, bound = _quantile(seen, rule.quantile), _interval(docket, rule, seen, sign)
    told = "not there" if value is None else "a failure" if isinf(value) else f"{sign * value:.4g} {unit}"
    said = f"the {which} {_NAMES[metric]} of {plural(len(seen), 'request')} is {told}"
    if settled.why:
        return f"{said}; {settled.why}"
    least = sign < 0
    wanted = f"{'at least' if least else 'at most'} {rule.limit:g} {unit}"
    if settled.extend:
        return f"{said}; whether it is {wanted} is open, and {plural(more, 'more request')} decide"
    sure = f"with {percent(docket.policy.confidence)} confidence it is"
    slow, fast = (
        (None, None) if bound is None else (bound.low, bound.high) if least else (bound.high, bound.low)
    )
    if settled.verdict is Verdict.PASS and slow is not None:
        return f"{said}; {sure} {_edge(slow, least)}, and {rule.limit:g} is the limit"
    if fast is not None and sign * fast > sign * rule.limit:
        return f"{said}; {sure} {_edge(fast, not least)}, and {rule.limit:g} is the limit"
    return f"{said}; {wanted} was not shown"


def _edge(value: float, from_below: bool) -> str:
    return f"at least {rounded(value, 1, 'down')}" if from_below else f"at most {rounded(value, 1, 'up')}"


# -------------------------------------------------------------------------- against the baseline


def judge_ratio(docket: Docket, metric: str, rule: Ratio) -> GateResult:
    """No slower than the baseline by more than the margin, over pairs, blocks and prompts."""
    found, lost = _pairs(docket, metric)
    blocks = len({pair.block for pair in found})
    median = None
    if found:
        median = median_log_ratio(
            found, seed=rule.seed, confidence=docket.policy.confidence, resamples=rule.resamples
        )
    settled = _settle_ratio(docket, rule, median, (len(found), blocks, lost))
    interval = None
    if median and not isinf(median.low):
        high = None if isinf(median.high) else exp(median.high) - 1.0
        interval = Interval(exp(median.low) - 1.0, high, docket.policy.confidence, "bootstrap")
    return GateResult(
        gate=metric,
        rule="ratio",
        tier=rule.tier,
        verdict=settled.verdict,
        n=len(found),
        bad=sum(pair.log_ratio > log1p(rule.margin) for pair in found),
        estimate=None if median is None or isinf(median.value) else exp(median.value) - 1.0,
        interval=interval,
        limit=rule.margin,
        unit="share slower",
        sentence=_ratio_sentence(docket, metric, rule, median, (len(found), blocks), settled),
    )


def _settle_ratio(docket: Docket, rule: Ratio, median: Median | None, found: tuple[int, int, int]) -> Settled:
    count, blocks, lost = found
    if not docket.outcomes.lineage:
        why = f"the baseline is another model, or not shown to be the same: {docket.outcomes.lineage.reason}"
        return Settled(Verdict.INCONCLUSIVE, why=why)
    if median is None or count < rule.pairs or blocks < rule.blocks:
        why = f"it needs {rule.pairs} pairs in {rule.blocks} blocks, and has {count} in {blocks}"
        return Settled(Verdict.INCONCLUSIVE, why=why)
    if median.low > log1p(rule.margin):
        return Settled(Verdict.FAIL)
    if lost > docket.policy.run.max_lost * (count + lost):
        return Settled(
            Verdict.INCONCLUSIVE, why=f"{lost} of {count + lost} pairs have no answer of the baseline"
        )
    if median.high <= log1p(rule.margin):
        return Settled(Verdict.PASS)
    return Settled(Verdict.INCONCLUSIVE, why=f"whether it is more than {percent(rule.margin)} slower is open")


def _pairs(docket: Docket, metric: str) -> tuple[list[Pair], int]:
    """Log ratios, positive where the candidate is slower, and how many pairs are not whole.

    A candidate's failure is infinitely slow. A baseline's failure, or an absent half, makes no pair:
    nobody gets credit for it.
    """
    sides: tuple[dict[tuple[str, str, int, int], float | None], ...] = ({}, {})
    for t in docket.outcomes.timings:
        if t.metric == metric:
            side = sides[t.arm == "baseline"]
            key = (t.case, t.bucket, t.block, t.pair)
            side[key] = t.value
    ours, theirs = sides
    whole = [key for key in ours if theirs.get(key) is not None]
    found = [Pair(key[2], key[:2], _log_ratio(metric, ours[key], theirs[key])) for key in whole]
    return found, len(ours.keys() | theirs.keys()) - len(whole)


def _log_ratio(metric: str, ours: float | None, theirs: float | None) -> float:
    if ours is None or theirs is None:
        return inf
    return log(theirs / ours) if metric == "decode" else log(ours / theirs)


def _ratio_sentence(
    docket: Docket, metric: str, rule: Ratio, median: Median | None, found: tuple[int, int], settled: Settled
) -> str:
    if median is None:
        return f"the {_NAMES[metric]} was not compared; {settled.why}"
    told = _slower(median.value)
    said = f"the {_NAMES[metric]} is {told} than the baseline's over {found[0]} pairs in {found[1]} blocks"
    if settled.why:
        return f"{said}; {settled.why}"
    sure = f"with {percent(docket.policy.confidence)} confidence"
    if settled.verdict is Verdict.PASS:
        high = exp(median.high) - 1.0
        most = f"at most {percent(high, 'up')} slower" if high > 0.0 else "not slower"
        return f"{said}; {sure} {most}, and {percent(rule.margin)} may be"
    return f"{said}; {sure} more than {percent(rule.margin)}, which is the margin"


def _slower(value: float) -> str:
    if isinf(value):
        return "infinitely slower"
    change = exp(value) - 1.0
    return f"{percent(abs(change))} {'slower' if change >= 0 else 'faster'}"
