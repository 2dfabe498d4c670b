"""Rule D: latency, absolute and against the baseline. Pure. A failed request counts as the slowest of all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, inf, isinf, log, log1p

from gates.contracts.metric import METRICS, Metric
from gates.contracts.verdict import GateResult, Interval, Verdict
from gates.judge.context import JudgingContext, OutcomeCounts, SettledVerdict, Timing, settle
from gates.judge.curves import latency_words
from gates.judge.formatting import format_number, interval_method, percent, plural
from gates.policy.policy import LatencyRule, RatioRule
from gates.stats.bootstrap import Median, Pair, median_log_ratio
from gates.stats.plans import QuantilePlan, lower_rank, upper_rank

_median = lru_cache(maxsize=8)(median_log_ratio)  # a job judges the same timings several times


def judge_latency(context: JudgingContext, metric: str, rule: LatencyRule) -> Iterator[GateResult]:
    """The absolute rule, for each prompt length or for all requests together."""
    ours = [t for t in context.measurements.timings if t.metric == metric and t.arm == "candidate"]
    if not rule.per_bucket:
        yield _absolute(context, metric, metric, rule, ours)
        return
    for bucket in sorted({t.bucket for t in ours}) or [""]:
        label = f"{metric}[{bucket}]"
        yield _absolute(context, metric, label, rule, [t for t in ours if t.bucket == bucket])


def _absolute(
    context: JudgingContext, metric: str, label: str, rule: LatencyRule, timings: Sequence[Timing]
) -> GateResult:
    # Slowness: times as they are, rates negated, so that larger is slower and a failure is the largest.
    measure = METRICS[metric]
    sign = measure.slower
    first, second = (
        sorted(inf if t.value is None else sign * t.value for t in timings if t.stage == stage)
        for stage in (1, 2)
    )
    n = max(rule.n, len(first))
    more = max(rule.n_max - n, len(second)) if rule.n_max > rule.n else 0
    plan = QuantilePlan(n, more, rule.quantile, context.policy.level(rule.n, rule.n_max))
    within, late = (sum(slow <= sign * rule.limit for slow in values) for values in (first, second))
    one = _counts(first, within, n)
    two = _counts(second, late, more) if second and more else None

    def best(extended: bool) -> Verdict:
        return plan.judge(one.ok + one.missing, two.ok + two.missing if two and extended else None)

    def worst(extended: bool) -> Verdict:
        return plan.judge(one.ok, two.ok if two and extended else None)

    settled = settle(best, worst, one, two, context.policy.run.max_lost)
    if one.missing and settled.why and (uncounted := context.measurements.uncounted):
        settled = replace(settled, why=f"{settled.why}; {uncounted}")
    decided = len(first) == n and plan.judge(within) is not Verdict.INCONCLUSIVE
    seen = first if decided else sorted(first + second)
    value = _quantile(seen, rule.quantile)
    bad = len(seen) - sum(slow <= sign * rule.limit for slow in seen)
    return GateResult(
        label, "latency", rule.tier, settled.verdict, len(seen), bad, None if value is None or isinf(value) else sign * value,
        _interval(context, rule, seen, sign), rule.limit, measure.unit,
        _sentence(context, measure, rule, seen, settled, more), settled.extend,
        curve_words=latency_words(measure.within(rule.limit), plan),
    )  # fmt: skip


def _counts(slowness: Sequence[float], within: int, n: int) -> OutcomeCounts:
    """Requests by outcome. One that failed is as bad as a slow one, and one that was not timed is missing."""
    lost = sum(map(isinf, slowness))
    return OutcomeCounts(within, len(slowness) - within - lost, lost, n - len(slowness))


def _quantile(slowness: Sequence[float], q: float) -> float | None:
    """The q-quantile by linear interpolation between the two nearest values."""
    if not slowness:
        return None
    at = q * (len(slowness) - 1)
    low, part = int(at), at - int(at)
    if not part or slowness[low] == slowness[low + 1]:
        return slowness[low]
    return slowness[low] * (1.0 - part) + slowness[low + 1] * part


def _bounds(
    context: JudgingContext, rule: LatencyRule, slowness: Sequence[float]
) -> tuple[float | None, float | None]:
    """How slow the quantile is at least, and at most; None if too few or failed requests bound it."""
    level = context.policy.level(rule.n, rule.n_max)
    ranks = [rank(len(slowness), rule.quantile, level) for rank in (lower_rank, upper_rank)]
    least, most = (None if r is None or isinf(slowness[r - 1]) else slowness[r - 1] for r in ranks)
    return least, most


def _interval(
    context: JudgingContext, rule: LatencyRule, slowness: Sequence[float], sign: float
) -> Interval | None:
    ends = [None if end is None else sign * end for end in _bounds(context, rule, slowness)]
    if ends == [None, None]:
        return None
    confidence, level = context.policy.confidence, context.policy.level(rule.n, rule.n_max)
    low, high = ends if sign > 0 else reversed(ends)
    return Interval(low, high, confidence, interval_method("order statistic", level, confidence))


def _sentence(
    context: JudgingContext,
    measure: Metric,
    rule: LatencyRule,
    seen: Sequence[float],
    settled: SettledVerdict,
    more: int,
) -> str:
    sign, unit, value = measure.slower, measure.unit, _quantile(seen, rule.quantile)
    which = "median" if rule.quantile == 0.5 else f"{percent(rule.quantile)} quantile"
    text = "a failure" if value is None or isinf(value) else f"{sign * value:.4g} {unit}"
    text = f"{text} over {plural(len(seen), 'request')}" if seen else "nothing was measured"
    least, most = _bounds(context, rule, seen)
    over = least is not None and least > sign * rule.limit
    shown = least if over else most
    if shown is None:
        sure = f"no bound: too {'many failed' if any(map(isinf, seen)) else 'few requests'}"
    elif over is not measure.is_rate:
        sure = f"at least {format_number(sign * shown, 1, 'down')} {unit}"
    else:
        sure = f"at most {format_number(sign * shown, 1, 'up')} {unit}"
    sure = f"{percent(context.policy.confidence)} confidence: {sure}"
    limit = f"limit: {measure.within(rule.limit)}"
    until = f"{plural(more, 'more request')} are made"
    return settled.sentence(f"{which} {measure.name}: {text}", "", sure, limit, rule.tier, until=until)


# -------------------------------------------------------------------------- against the baseline


def judge_ratio(context: JudgingContext, metric: str, rule: RatioRule) -> GateResult:
    """Not slower than the baseline by more than the margin, over pairs, blocks and prompts."""
    found, lost = _pairs(context, metric)
    blocks = len({pair.block for pair in found})
    sure = context.policy.confidence
    median = (
        _median(tuple(found), seed=rule.seed, confidence=sure, resamples=rule.resamples) if found else None
    )
    settled = _settle_ratio(context, rule, median, (len(found), blocks, lost))
    interval = None
    if median and not isinf(median.low):
        high = None if isinf(median.high) else exp(median.high) - 1.0
        interval = Interval(exp(median.low) - 1.0, high, sure, "bootstrap")
    estimate = None if median is None or isinf(median.value) else exp(median.value) - 1.0
    return GateResult(
        metric, "ratio", rule.tier, settled.verdict, len(found), sum(pair.log_ratio > log1p(rule.margin) for pair in found),
        estimate, interval, rule.margin, "share slower",
        _ratio_sentence(context, metric, rule, median, (len(found), blocks), settled),
    )  # fmt: skip


def _settle_ratio(
    context: JudgingContext, rule: RatioRule, median: Median | None, found: tuple[int, int, int]
) -> SettledVerdict:
    count, blocks, lost = found
    limit = log1p(rule.margin)
    if not context.measurements.lineage:
        why = f"the baseline is another model, or not shown to be the same: {context.measurements.lineage.reason}"
    elif median is None or count < rule.pairs or blocks < rule.blocks:
        why = f"it needs {rule.pairs} pairs in {rule.blocks} blocks, and has {count} in {blocks}"
    elif median.low > limit:
        return SettledVerdict(Verdict.FAIL)
    elif lost > context.policy.run.max_lost * (count + lost):
        why = f"{lost} of {count + lost} pairs have no answer of the baseline"
    elif median.high <= limit:
        return SettledVerdict(Verdict.PASS)
    else:
        why = f"whether it is more than {percent(rule.margin)} slower is open"
    return SettledVerdict(Verdict.INCONCLUSIVE, why=why)


def _pairs(context: JudgingContext, metric: str) -> tuple[list[Pair], int]:
    """Log ratios, positive where the candidate is slower, and the number of incomplete pairs. A failed request of the candidate
    is infinitely slow; one of the baseline makes no pair, so that neither arm profits.
    """
    timed = [t for t in context.measurements.timings if t.metric == metric]
    ours, theirs = (
        {(t.case, t.bucket, t.block, t.pair): t.value for t in timed if t.arm == arm}
        for arm in ("candidate", "baseline")
    )
    whole = [key for key in ours if theirs.get(key) is not None]
    found = [Pair(key[2], key[:2], _log_ratio(metric, ours[key], theirs[key])) for key in whole]
    return found, len(ours.keys() | theirs.keys()) - len(whole)


def _log_ratio(metric: str, ours: float | None, theirs: float | None) -> float:
    if ours is None or theirs is None:
        return inf
    return METRICS[metric].slower * log(ours / theirs)


def _ratio_sentence(
    context: JudgingContext,
    metric: str,
    rule: RatioRule,
    median: Median | None,
    found: tuple[int, int],
    settled: SettledVerdict,
) -> str:
    limit, said, over, sure = f"limit: {percent(rule.margin)} slower", "was not compared with", "", ""
    if median is not None:
        said = f"{_change_text(median.value)} than"
        over = f"{plural(found[0], 'pair')} in {plural(found[1], 'block')}"
        high = exp(median.high) - 1.0
        if settled.verdict is Verdict.FAIL:
            low = "infinitely" if isinf(median.low) else f"more than {percent(exp(median.low) - 1.0, 'down')}"
            sure = f"{low} slower"
        else:
            sure = f"at most {percent(high, 'up')} slower" if high > 0.0 else "not slower"
        sure = f"{percent(context.policy.confidence)} confidence: {sure}"
    colon = "" if median is None else ":"
    return settled.sentence(
        f"{METRICS[metric].name}{colon} {said} the baseline", over, sure, limit, rule.tier
    )


def _change_text(value: float) -> str:
    if isinf(value):
        return "infinitely slower"
    change = exp(value) - 1.0
    return f"{percent(abs(change))} {'slower' if change >= 0 else 'faster'}"
