"""The rules that look at the candidate alone: the seeds' named floors, rule A and rule B. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gates.contracts.verdict import GateResult, Interval, Verdict
from gates.judge.context import Docket
from gates.judge.curves import of_floor, of_rate, of_zero
from gates.judge.tally import Count, Settled, State, asked, count, settle
from gates.judge.words import listed, method, percent, phrase, plural
from gates.policy.rules import Floor, Gate, Rate, Zero
from gates.stats.binomial import clopper_pearson_lower, wilson_lower, wilson_upper
from gates.stats.rate import RatePlan
from gates.stats.zero import ZeroPlan

# ------------------------------------------------------------------------------------ named floors


def judge_floor(docket: Docket, name: str, gate: Gate, floor: Floor) -> GateResult:
    """The named cases: so many of so many. No interval decides here; it is shown."""
    found = count(_named(docket, name).values())
    found += Count(missing=max(0, floor.of - found.n))

    def judged(good: int) -> Verdict:
        return Verdict.PASS if good >= floor.least else Verdict.FAIL

    # A share of lost answers says nothing of ten cases; that they could decide does.
    settled = settle(
        lambda _: judged(found.ok + found.open), lambda _: judged(found.ok), found, None, max_lost=1.0
    )
    seen, confidence = found.ok + found.bad, docket.policy.confidence
    low = clopper_pearson_lower(found.ok, seen, confidence) if seen else None
    curve, words = of_floor(name, floor)
    said = f"{found.ok} of the {floor.of} named {phrase(name).good}, and {floor.least} must"
    return GateResult(
        gate=name,
        rule="floor",
        tier=gate.tier,
        verdict=settled.verdict,
        n=seen,
        bad=found.bad,
        estimate=found.ok / seen if seen else None,
        interval=Interval(low, None, confidence, "Clopper-Pearson") if seen else None,
        limit=floor.least / floor.of,
        unit="share",
        sentence=f"{said}{_but(settled)}{_which(_named(docket, name))}",
        curve=curve,
        curve_words=words,
    )


def _named(docket: Docket, name: str) -> dict[str, State]:
    named = {case.id for case in docket.outcomes.suite.of(name, 1) if name in case.named}
    return {case: state for case, state in docket.of(docket.candidate, name, 1).items() if case in named}


def _but(settled: Settled) -> str:
    return f"; {settled.why}" if settled.why else ""


def _lost(seen: Count) -> str:
    return f", and {seen.lost} lost on the way count as the worst" if seen.lost else ""


def _which(*found: Mapping[str, State]) -> str:
    bad = [case for stage in found for case, state in stage.items() if state == "bad"]
    return f" (not {listed(bad)})" if bad else ""


# ------------------------------------------------------------------------------- rule A: none may


def judge_zero(docket: Docket, name: str, gate: Gate, rule: Zero) -> GateResult:
    """No failure, by the two-stage plan over the prompts that the suite has."""
    one, two = (docket.of(docket.candidate, name, stage) for stage in (1, 2))
    named = _named(docket, name)
    first = count(one.values())
    first += Count(missing=max(0, rule.first - first.n))
    second = count(two.values()) if rule.second else Count()
    plan = ZeroPlan(first.n, second.n, len(named))
    more = second if asked(second) else None
    among = count(named.values())

    def best(late: bool) -> Verdict:
        return plan.judge(first.bad, among.bad, second.bad if late else None)

    def worst(late: bool) -> Verdict:
        unsure = second.bad + second.open if late else None
        return plan.judge(first.bad + first.open, among.bad + among.open, unsure)

    settled = settle(best, worst, first, more, docket.policy.run.max_lost)
    seen = first + more if more else first
    curve, words = of_zero(name, plan)
    return GateResult(
        gate=name,
        rule="zero",
        tier=gate.tier,
        verdict=settled.verdict,
        n=seen.ok + seen.bad,
        bad=seen.bad,
        estimate=seen.bad / (seen.ok + seen.bad) if seen.ok + seen.bad else None,
        interval=_zero_interval(docket, plan, first, more, settled),
        limit=0.0,
        unit="share",
        sentence=_zero_sentence(docket, name, plan, first, more, settled, (one, two, named)),
        extend=settled.extend,
        curve=curve,
        curve_words=words,
    )


def _zero_interval(
    docket: Docket, plan: ZeroPlan, first: Count, more: Count | None, settled: Settled
) -> Interval | None:
    """The upper bound of a pass; the lower bound of a failure over a stage that was asked to its end."""
    confidence = docket.policy.confidence
    if settled.verdict is Verdict.PASS:
        late = None if more is None else more.bad + more.open
        unsure = first.bad + first.open
        how = "Clopper-Pearson, by stages" if unsure else "Clopper-Pearson"
        return Interval(0.0, plan.upper(unsure, late, confidence), confidence, how)
    if settled.verdict is Verdict.FAIL and not first.open:
        low = clopper_pearson_lower(first.bad, first.n, confidence)
        return Interval(low, None, confidence, "Clopper-Pearson")
    return None


def _zero_sentence(
    docket: Docket,
    name: str,
    plan: ZeroPlan,
    first: Count,
    more: Count | None,
    settled: Settled,
    found: tuple[Mapping[str, State], Mapping[str, State], Mapping[str, State]],
) -> str:
    one, two, named = found
    seen = first + more if more else first
    said = f"{seen.bad} of {seen.ok + seen.bad} {phrase(name).bad}{_lost(seen)}"
    bad = [case for stage in (one, two if more else {}) for case, state in stage.items() if state == "bad"]
    who = f" ({listed(bad)})" if bad else ""
    if settled.verdict is Verdict.PASS:
        bound = _zero_interval(docket, plan, first, more, settled)
        high = percent(bound.high, "up") if bound and bound.high is not None else "?"
        return f"{said}{who}; with {percent(docket.policy.confidence)} confidence fewer than {high} do"
    if settled.verdict is Verdict.FAIL:
        worst = [case for case in bad if case in named]
        where = f", {len(worst)} of them among the {len(named)} named" if worst else ""
        return f"{said}{who}{where}, and none may"
    if settled.extend:
        return f"{said}{who}; {plural(plan.second, 'fresh prompt')} decide, and all of them must be clean"
    return f"{said}{who}; {settled.why}"


# --------------------------------------------------------------------------- rule B: enough must


def judge_rate(docket: Docket, name: str, gate: Gate, rule: Rate) -> GateResult:
    """A share at least, by Wilson's bounds."""
    first = count(docket.of(docket.candidate, name, 1).values())
    first += Count(missing=max(0, rule.n - first.n))
    second = count(docket.of(docket.candidate, name, 2).values()) if rule.n_max > rule.n else Count()
    level = docket.policy.level(rule.n, rule.n_max)
    plan = RatePlan(first.n, rule.least, second.n, level)
    more = second if asked(second) else None

    def best(late: bool) -> Verdict:
        return plan.judge(first.ok + first.open, second.ok + second.open if late else None)

    def worst(late: bool) -> Verdict:
        return plan.judge(first.ok, second.ok if late else None)

    settled = settle(best, worst, first, more, docket.policy.run.max_lost)
    # What stage one decided is told of stage one: the extension was another gate's.
    decided = worst(False) is Verdict.PASS or best(False) is Verdict.FAIL
    seen = first + more if more and not decided else first
    curve, words = of_rate(name, plan)
    n = seen.ok + seen.bad
    return GateResult(
        gate=name,
        rule="rate",
        tier=gate.tier,
        verdict=settled.verdict,
        n=n,
        bad=seen.bad,
        estimate=seen.ok / n if n else None,
        interval=_rate_interval(docket, rule, seen),
        limit=rule.least,
        unit="share",
        sentence=_rate_sentence(docket, name, rule, seen, second, settled),
        extend=settled.extend,
        curve=curve,
        curve_words=words,
    )


def _rate_interval(docket: Docket, rule: Rate, seen: Count) -> Interval | None:
    """Both one-sided bounds; lost answers count as bad in the lower and as good in the upper."""
    confidence, level = docket.policy.confidence, docket.policy.level(rule.n, rule.n_max)
    n = seen.ok + seen.bad + seen.lost
    if not n:
        return None
    low, high = wilson_lower(seen.ok, n, level), wilson_upper(seen.ok + seen.lost, n, level)
    return Interval(low, high, confidence, method("Wilson", level, confidence))


def _rate_sentence(
    docket: Docket, name: str, rule: Rate, seen: Count, second: Count, settled: Settled
) -> str:
    n, least = seen.ok + seen.bad, percent(rule.least)
    share = f" ({percent(seen.ok / n)})" if n else ""
    said = f"{seen.ok} of {n} {phrase(name).good}{share}{_lost(seen)}"
    bound = _rate_interval(docket, rule, seen)
    if bound is None or bound.low is None or bound.high is None or settled.why:
        return f"{said}; {settled.why}"
    sure = f"with {percent(docket.policy.confidence)} confidence"
    if settled.verdict is Verdict.PASS:
        return f"{said}; {sure} at least {percent(bound.low, 'down')} do, and {least} must"
    if settled.extend:
        return f"{said}; whether {least} do is open, and {plural(second.n, 'fresh prompt')} decide"
    if bound.high < rule.least:
        return f"{said}; {sure} fewer than {percent(bound.high, 'up')} do, and {least} must"
    return f"{said}; that {least} do was not shown: {sure} only {percent(bound.low, 'down')} do"
