"""Rules that judge the candidate alone: floors over named cases, rule A (zero) and rule B (rate). Pure."""

from collections.abc import Mapping

from gates.contracts.verdict import GateResult, Interval, Verdict
from gates.detect.catalogue import GATES
from gates.judge.context import (
    CaseState,
    JudgingContext,
    OutcomeCounts,
    SettledVerdict,
    count_outcomes,
    settle,
)
from gates.judge.formatting import interval_method, join_names, percent, plural
from gates.judge.sequential import judge_sequence, span
from gates.policy.policy import FloorRule, GateRules, RateRule, ZeroRule
from gates.stats.binomial import clopper_pearson_lower, wilson_lower, wilson_upper
from gates.stats.plans import ZeroPlan, rate_plan

Results = Mapping[str, CaseState]


def judge_floor(context: JudgingContext, name: str, gate: GateRules, floor: FloorRule) -> GateResult:
    """The floor rule: at least `least` named cases must be right. The interval is shown and does not decide."""
    named = _named_states(context, name)
    found = count_outcomes(named.values(), floor.of)

    def judged(one: tuple[int]) -> Verdict:
        return Verdict.PASS if one[0] >= floor.least else Verdict.FAIL

    # The limit on lost answers is not applied to so few cases; whether they could decide is.
    best, worst = ((found.ok + found.open,), ()), ((found.ok,), ())
    settled, _ = settle(judged, best, worst, found, OutcomeCounts(), max_lost=1.0)
    seen, confidence = found.ok + found.bad, context.policy.confidence
    low = clopper_pearson_lower(found.ok, seen, confidence) if seen else None
    interval = Interval(low, None, confidence, "Clopper-Pearson") if seen else None
    said = f"{found.bad} of {seen} named prompts {GATES[name].bad}"
    limit = f"limit {floor.of - floor.least}"
    sentence = settled.sentence(said, "", "", limit, gate.tier, cases=_bad_cases(named))
    return GateResult(
        name, "floor", gate.tier, settled.verdict, seen, found.bad, found.ok / seen if seen else None, interval,
        floor.least / floor.of, "share", sentence,
    )  # fmt: skip


def _named_states(context: JudgingContext, name: str) -> Results:
    named = {case.id for case in context.measurements.suite.of(name, 1) if name in case.named}
    return {case: state for case, state in context.states("candidate", name, 1).items() if case in named}


def _lost_clause(seen: OutcomeCounts) -> str:
    return f", {plural(seen.lost, 'lost answer')} counted as bad" if seen.lost else ""


def _bad_cases(*found: Results) -> str:
    bad = [case for stage in found for case, state in stage.items() if state == "bad"]
    return f": {join_names(bad)}" if bad else ""


def judge_zero(context: JudgingContext, name: str, gate: GateRules, rule: ZeroRule) -> GateResult:
    """Rule A (none may fail): no failure, by the two-stage plan over the prompts that the suite has, or, in a sequential run, that were asked."""
    one, two = (context.states("candidate", name, stage) for stage in (1, 2))
    if context.talks:
        asked = [case for case, state in one.items() if state != "missing"]
        stages = (asked[: rule.first], asked[rule.first :]) if rule.second else (asked, ())
        one, two = ({case: one[case] for case in stage} for stage in stages)
    among = count_outcomes(
        state for case, state in _named_states(context, name).items() if case in one or case in two
    )
    first = count_outcomes(one.values(), rule.first)
    second = count_outcomes(two.values() if rule.second else (), rule.second)
    plan, confidence = ZeroPlan(first.n, second.n, among.n), context.policy.confidence
    best = (first.bad, among.bad), (second.bad,)
    worst = (first.bad + first.open, among.bad + among.open), (second.bad + second.open,)
    settled, more = settle(plan.judge, best, worst, first, second, context.policy.run.max_lost)
    seen, interval, sure, where = first + second if more else first, None, "", ""
    if settled.verdict is Verdict.PASS:
        unsure, late = first.bad + first.open, second.bad + second.open if more else None
        how = "Clopper-Pearson, by stages" if unsure else "Clopper-Pearson"
        upper = plan.upper(unsure, late, confidence)
        interval = Interval(0.0, upper, confidence, how)
        sure = context.surely(f"below {percent(upper, 'up')}")
    elif settled.verdict is Verdict.FAIL:
        where = f", {among.bad} of them named" if among.bad else ""
        if not first.open:
            lower = clopper_pearson_lower(first.bad, first.n, confidence)
            interval = Interval(lower, None, confidence, "Clopper-Pearson")
    n = seen.ok + seen.bad
    sentence = settled.sentence(
        f"{seen.bad} of {n} {GATES[name].bad}{_lost_clause(seen)}{where}", "", sure,
        f"limit 1, and 0 of the last {plan.second}" if more and two else "limit 0", gate.tier,
        cases=_bad_cases(one, two if more else {}), until=f"{plural(plan.second, 'more prompt')} are asked (limit 0)",
    )  # fmt: skip
    return GateResult(
        name, "zero", gate.tier, settled.verdict, n, seen.bad, seen.bad / n if n else None, interval,
        0.0, "share", sentence, settled.extend,
    )  # fmt: skip


def judge_rate(context: JudgingContext, name: str, gate: GateRules, rule: RateRule) -> GateResult:
    """Rule B (enough must be right): the share of successes, by Wilson's bounds; in a sequential run that of conversations, by bets."""
    judged = _rate_in_sequence if context.talks else _rate_by_stages
    settled, seen, share, interval, until = judged(context, name, rule)
    n, sure = seen.ok + seen.bad, ""
    if interval and interval.low is not None and interval.high is not None:
        low, high = percent(interval.low, "down"), percent(interval.high, "up")
        sure = context.surely(f"at most {high}" if interval.high < rule.least else f"at least {low}")
    sentence = settled.sentence(
        f"{seen.ok} of {n} {GATES[name].good}{_lost_clause(seen)}", percent(seen.ok / n) if n else "", sure,
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
    one, two = (context.states("candidate", name, stage).values() for stage in (1, 2))
    first, second = count_outcomes(one, rule.n), count_outcomes(two if rule.n_max > rule.n else ())
    level, confidence = context.policy.level(rule.n, rule.n_max), context.policy.confidence
    plan = rate_plan(first.n, rule.least, second.n, level)
    best, worst = ((first.ok + first.open,), (second.ok + second.open,)), ((first.ok,), (second.ok,))
    settled, more = settle(plan.judge, best, worst, first, second, context.policy.run.max_lost)
    # If stage 1 decided, only stage 1 is reported: the extension was asked for another gate.
    seen, interval = first + second if more and not settled.early else first, None
    if n := seen.ok + seen.bad + seen.lost:
        # Lost answers count as bad in the lower bound and as good in the upper.
        low, high = wilson_lower(seen.ok, n, level), wilson_upper(seen.ok + seen.lost, n, level)
        interval = Interval(low, high, confidence, interval_method("Wilson", level, confidence))
    share = seen.ok / (seen.ok + seen.bad) if seen.ok + seen.bad else None
    return settled, seen, share, interval, plural(second.n, "more prompt")
