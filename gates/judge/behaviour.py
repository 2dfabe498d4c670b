"""Rules that judge the candidate alone: floors over named cases, rule A (zero) and rule B (rate). Pure."""

from collections.abc import Mapping

from gates.contracts.verdict import GateResult, Interval, Verdict
from gates.judge.context import (
    CaseState,
    JudgingContext,
    OutcomeCounts,
    SettledVerdict,
    count_outcomes,
    if_asked,
    settle,
)
from gates.judge.formatting import interval_method, join_names, outcome_wording, percent, plural
from gates.judge.sequential import judge_sequence, span
from gates.policy.policy import FloorRule, GateRules, RateRule, ZeroRule
from gates.stats.binomial import clopper_pearson_lower, wilson_lower, wilson_upper
from gates.stats.plans import RatePlan, ZeroPlan

Results = Mapping[str, CaseState]


def judge_floor(context: JudgingContext, name: str, gate: GateRules, floor: FloorRule) -> GateResult:
    """The floor rule: at least `least` named cases must be right. The interval is shown and does not decide."""
    named = _named_states(context, name)
    found = _count(named, floor.of)

    def judged(good: int) -> Verdict:
        return Verdict.PASS if good >= floor.least else Verdict.FAIL

    # The limit on lost answers is not applied to so few cases; whether they could decide is.
    settled = settle(judged, ((found.ok + found.open,), ()), ((found.ok,), ()), found, None, max_lost=1.0)
    seen, confidence = found.ok + found.bad, context.policy.confidence
    low = clopper_pearson_lower(found.ok, seen, confidence) if seen else None
    interval = Interval(low, None, confidence, "Clopper-Pearson") if seen else None
    said = f"{found.bad} of {seen} named prompts {outcome_wording(name).bad}"
    limit = f"limit {floor.of - floor.least}"
    sentence = settled.sentence(said, "", "", limit, gate.tier, cases=_bad_cases(named))
    return GateResult(
        name, "floor", gate.tier, settled.verdict, seen, found.bad, found.ok / seen if seen else None, interval,
        floor.least / floor.of, "share", sentence,
    )  # fmt: skip


def _named_states(context: JudgingContext, name: str) -> Results:
    named = {case.id for case in context.measurements.suite.of(name, 1) if name in case.named}
    return {case: state for case, state in context.states("candidate", name, 1).items() if case in named}


def _count(states: Results, least: int) -> OutcomeCounts:
    """Cases by outcome; of fewer than the policy asks for, the others are missing."""
    found = count_outcomes(states.values())
    return found + OutcomeCounts(missing=max(0, least - found.n))


def _lost_clause(seen: OutcomeCounts) -> str:
    return f", {plural(seen.lost, 'lost answer')} counted as bad" if seen.lost else ""


def _bad_cases(*found: Results) -> str:
    bad = [case for stage in found for case, state in stage.items() if state == "bad"]
    return f": {join_names(bad)}" if bad else ""


# ------------------------------------------------------------------------------- rule A: none may


def judge_zero(context: JudgingContext, name: str, gate: GateRules, rule: ZeroRule) -> GateResult:
    """Rule A: no failure, by the two-stage plan over the prompts that the suite has, or, in a sequential run, that were asked."""
    one, two = (context.states("candidate", name, stage) for stage in (1, 2))
    if context.talks:
        asked = [case for case, state in one.items() if state != "missing"]
        stages = (asked[: rule.first], asked[rule.first :]) if rule.second else (asked, ())
        one, two = ({case: one[case] for case in stage} for stage in stages)
    named = {
        case: state for case, state in _named_states(context, name).items() if case in one or case in two
    }
    first, second = _count(one, rule.first), _count(two if rule.second else {}, rule.second)
    plan, among, more = (
        ZeroPlan(first.n, second.n, len(named)),
        count_outcomes(named.values()),
        if_asked(second),
    )
    best = (first.bad, among.bad), (second.bad,)
    worst = (first.bad + first.open, among.bad + among.open), (second.bad + second.open,)
    settled = settle(plan.judge, best, worst, first, more, context.policy.run.max_lost)
    seen = first + more if more else first
    n, interval, sure = seen.ok + seen.bad, _zero_interval(context, plan, first, more, settled), ""
    where = f", {among.bad} of them named" if among.bad and settled.verdict is Verdict.FAIL else ""
    if settled.verdict is Verdict.PASS and interval and interval.high is not None:
        sure = f"{percent(context.policy.confidence)} confidence: below {percent(interval.high, 'up')}"
    sentence = settled.sentence(
        f"{seen.bad} of {n} {outcome_wording(name).bad}{_lost_clause(seen)}{where}", "", sure,
        f"limit 1, and 0 of the last {plan.second}" if more and two else "limit 0", gate.tier,
        cases=_bad_cases(one, two if more else {}), until=f"{plural(plan.second, 'more prompt')} are asked (limit 0)",
    )  # fmt: skip
    return GateResult(
        name, "zero", gate.tier, settled.verdict, n, seen.bad, seen.bad / n if n else None, interval,
        0.0, "share", sentence, settled.extend,
    )  # fmt: skip


def _zero_interval(
    context: JudgingContext,
    plan: ZeroPlan,
    first: OutcomeCounts,
    more: OutcomeCounts | None,
    settled: SettledVerdict,
) -> Interval | None:
    """The upper bound after a pass; the lower bound after a failure in a stage that was completed."""
    confidence, how = context.policy.confidence, "Clopper-Pearson"
    if settled.verdict is Verdict.PASS:
        late, unsure = more.bad + more.open if more else None, first.bad + first.open
        return Interval(
            0.0, plan.upper(unsure, late, confidence), confidence, f"{how}, by stages" if unsure else how
        )
    if settled.verdict is Verdict.FAIL and not first.open:
        return Interval(clopper_pearson_lower(first.bad, first.n, confidence), None, confidence, how)
    return None


# --------------------------------------------------------------------------- rule B: enough must


def judge_rate(context: JudgingContext, name: str, gate: GateRules, rule: RateRule) -> GateResult:
    """Rule B: the share of successes, by Wilson's bounds; in a sequential run that of conversations, by bets."""
    judged = _rate_in_sequence if context.talks else _rate_by_stages
    settled, seen, share, interval, until = judged(context, name, rule)
    n, sure = seen.ok + seen.bad, ""
    if interval and interval.low is not None and interval.high is not None:
        low, high = percent(interval.low, "down"), percent(interval.high, "up")
        least = f"at most {high}" if interval.high < rule.least else f"at least {low}"
        sure = f"{percent(context.policy.confidence)} confidence: {least}"
    sentence = settled.sentence(
        f"{seen.ok} of {n} {outcome_wording(name).good}{_lost_clause(seen)}", percent(seen.ok / n) if n else "", sure,
        f"required: {percent(rule.least)}", gate.tier, until=f"{until} are asked",
    )  # fmt: skip
    return GateResult(
        name, "rate", gate.tier, settled.verdict, n, seen.bad, share, interval, rule.least, "share",
        sentence, settled.extend,
    )  # fmt: skip


_Rate = tuple[SettledVerdict, OutcomeCounts, float | None, Interval | None, str]


def _rate_in_sequence(context: JudgingContext, name: str, rule: RateRule) -> _Rate:
    states = context.states("candidate", name, 1)
    found = judge_sequence(context, rule.least, states, lambda case: span(states[case]))
    seen = count_outcomes(states[case] for case in found.cases)
    return found.settled, seen, found.mean, found.interval, "more prompts"


def _rate_by_stages(context: JudgingContext, name: str, rule: RateRule) -> _Rate:
    one, two = (context.states("candidate", name, stage) for stage in (1, 2))
    first, second = _count(one, rule.n), _count(two if rule.n_max > rule.n else {}, 0)
    level, more = context.policy.level(rule.n, rule.n_max), if_asked(second)
    plan = RatePlan(first.n, rule.least, second.n, level)
    best, worst = ((first.ok + first.open,), (second.ok + second.open,)), ((first.ok,), (second.ok,))
    settled = settle(plan.judge, best, worst, first, more, context.policy.run.max_lost)
    # If stage 1 decided, only stage 1 is reported: the extension was asked for another gate.
    seen = first + more if more and not settled.early else first
    share = seen.ok / (seen.ok + seen.bad) if seen.ok + seen.bad else None
    until = plural(second.n, "more prompt")
    return settled, seen, share, _rate_interval(context, level, seen), until


def _rate_interval(context: JudgingContext, level: float, seen: OutcomeCounts) -> Interval | None:
    """Both one-sided bounds. Lost answers count as bad in the lower bound and as good in the upper."""
    confidence, n = context.policy.confidence, seen.ok + seen.bad + seen.lost
    if not n:
        return None
    low, high = wilson_lower(seen.ok, n, level), wilson_upper(seen.ok + seen.lost, n, level)
    return Interval(low, high, confidence, interval_method("Wilson", level, confidence))
