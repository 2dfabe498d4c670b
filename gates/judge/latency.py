"""Rule D: latency, absolute and against the baseline. Pure. A failed request counts as the slowest of all."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil, exp, inf, isinf, log, log1p

from gates.contracts.verdict import METRICS, GateResult, Interval, Verdict
from gates.judge.context import JudgingContext, OutcomeCounts, SettledVerdict, settle
from gates.judge.formatting import format_number, interval_method, percent, plural
from gates.policy.policy import LatencyRule, RatioRule
from gates.stats.bootstrap import Pair, median_log_ratio
from gates.stats.plans import lower_rank, quantile_plan, upper_rank

_median = lru_cache(maxsize=8)(median_log_ratio)  # a job judges the same timings several times


def judge_latency(context: JudgingContext, metric: str, rule: LatencyRule) -> GateResult:
    """The absolute rule, over all requests of the candidate."""
    timings = [t for t in context.measurements.timings if t.metric == metric and t.arm == "candidate"]
    # Slowness: times as they are, rates negated, so that larger is slower and a failure is the largest.
    measure, level = METRICS[metric], context.policy.level(rule.n, rule.n_max)
    sign, limit = measure.slower, measure.slower * rule.limit
    first, second = (
        sorted(inf if t.value is None else sign * t.value for t in timings if t.stage == stage)
        for stage in (1, 2)
    )
    n = max(rule.n, len(first))
    more = max(rule.n_max - n, len(second)) if rule.n_max > rule.n else 0
    plan = quantile_plan(n, more, rule.quantile, level)
    one, two = _counts(first, limit, n), _counts(second, limit, more)
    best, worst = ((one.ok + one.missing,), (two.ok + two.missing,)), ((one.ok,), (two.ok,))
    two = two if second and more else OutcomeCounts()
    settled, _ = settle(plan.judge, best, worst, one, two, context.policy.run.max_lost)
    if one.missing and settled.why and (uncounted := context.measurements.uncounted):
        settled = replace(settled, why=f"{settled.why}; {uncounted}")
    seen = first if settled.early else sorted(first + second)
    value = seen[ceil(rule.quantile * len(seen)) - 1] if seen else inf
    bad = sum(slow > limit for slow in seen)
    ranks = [rank(len(seen), rule.quantile, level) for rank in (lower_rank, upper_rank)]
    least, most = (None if r is None or isinf(seen[r - 1]) else sign * seen[r - 1] for r in ranks)
    interval = None
    if least is not None or most is not None:
        low, high = (least, most) if sign > 0 else (most, least)
        how = interval_method("order statistic", level, context.policy.confidence)
        interval = Interval(low, high, context.policy.confidence, how)
    which = "median" if rule.quantile == 0.5 else f"{percent(rule.quantile)} quantile"
    said = "a failure" if isinf(value) else f"{sign * value:.4g} {measure.unit}"
    said = f"{said} over {plural(len(seen), 'request')}" if seen else "nothing was measured"
    over = least is not None and sign * least > limit
    if (shown := least if over else most) is None:  # too few or failed requests bound it
        sure = f"no bound: too {'many failed' if any(map(isinf, seen)) else 'few requests'}"
    elif over is not measure.is_rate:
        sure = f"at least {format_number(shown, 1, 'down')} {measure.unit}"
    else:
        sure = f"at most {format_number(shown, 1, 'up')} {measure.unit}"
    sentence = settled.sentence(
        f"{which} {measure.name}: {said}", "", context.surely(sure), f"limit: {measure.within(rule.limit)}", rule.tier,
        until=f"{plural(more, 'more request')} are made",
    )  # fmt: skip
    return GateResult(
        metric, "latency", rule.tier, settled.verdict, len(seen), bad, None if isinf(value) else sign * value,
        interval, rule.limit, measure.unit, sentence, settled.extend,
    )  # fmt: skip


def _counts(slowness: Sequence[float], limit: float, n: int) -> OutcomeCounts:
    """Requests by outcome. One that failed is as bad as a slow one, and one that was not timed is missing."""
    lost, within = sum(map(isinf, slowness)), sum(slow <= limit for slow in slowness)
    return OutcomeCounts(within, len(slowness) - within - lost, lost, n - len(slowness))


def judge_ratio(context: JudgingContext, metric: str, rule: RatioRule) -> GateResult:
    """Not slower than the baseline by more than the margin, over pairs, blocks and prompts."""
    found, lost = _pairs(context, metric)
    blocks, limit = len({pair.block for pair in found}), log1p(rule.margin)
    verdict, why, said, over, sure, interval, estimate = Verdict.INCONCLUSIVE, "", "", "", "", None, None
    if found:
        confidence = context.policy.confidence
        median = _median(tuple(found), seed=rule.seed, confidence=confidence, resamples=rule.resamples)
        bounds = (None if isinf(x) else exp(x) - 1.0 for x in (median.value, median.low, median.high))
        estimate, low, high = bounds
        interval = None if low is None else Interval(low, high, confidence, "bootstrap")
        said = f": {_change_text(estimate)} than"
        over = f"{plural(len(found), 'pair')} in {plural(blocks, 'block')}"
        if median.low > limit:
            verdict = Verdict.FAIL
            sure = "infinitely slower" if low is None else f"more than {percent(low, 'down')} slower"
        else:
            verdict = Verdict.PASS if median.high <= limit else verdict
            sure = f"at most {percent(inf if high is None else high, 'up')} slower"
            sure = "not slower" if high is not None and high <= 0.0 else sure
        sure = context.surely(sure)
    if not context.measurements.lineage:
        why = f"the baseline is another model, or not shown to be the same: {context.measurements.lineage.reason}"
    elif len(found) < rule.pairs or blocks < rule.blocks:
        why = f"it needs {rule.pairs} pairs in {rule.blocks} blocks, and has {len(found)} in {blocks}"
    elif verdict is not Verdict.FAIL and lost > context.policy.run.max_lost * (len(found) + lost):
        why = f"{lost} of {len(found) + lost} pairs have no answer of the baseline"
    elif verdict is Verdict.INCONCLUSIVE:
        why = f"whether it is more than {percent(rule.margin)} slower is open"
    settled = SettledVerdict(Verdict.INCONCLUSIVE if why else verdict, why=why)
    return GateResult(
        metric, "ratio", rule.tier, settled.verdict, len(found), sum(pair.log_ratio > limit for pair in found),
        estimate, interval, rule.margin, "share slower",
        settled.sentence(
            f"{METRICS[metric].name}{said or ' was not compared with'} the baseline", over, sure,
            f"limit: {percent(rule.margin)} slower", rule.tier,
        ),
    )  # fmt: skip


def _pairs(context: JudgingContext, metric: str) -> tuple[list[Pair], int]:
    """Log ratios, positive where the candidate is slower (infinity: it failed), and the number of pairs that lack an answer of the baseline."""
    timed = [t for t in context.measurements.timings if t.metric == metric]
    ours, theirs = (
        {(t.case, t.bucket, t.block, t.pair): t.value for t in timed if t.arm == arm}
        for arm in ("candidate", "baseline")
    )
    slower, found = METRICS[metric].slower, list[Pair]()
    for key, value in ours.items():
        if (other := theirs.get(key)) is not None:
            found.append(Pair(key[2], key[:2], inf if value is None else slower * log(value / other)))
    return found, len(ours.keys() | theirs.keys()) - len(found)


def _change_text(change: float | None) -> str:
    if change is None:
        return "infinitely slower"
    return f"{percent(abs(change))} {'slower' if change >= 0 else 'faster'}"
