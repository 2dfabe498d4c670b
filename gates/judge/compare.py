"""Rule C: comparison with the baseline, prompt by prompt, and the A/A run that measures its noise. Pure.

A loss: the baseline right, the candidate wrong. Unknown pairs count for the candidate in the best case, against it in the worst.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from gates.contracts.verdict import ControlResult, Flip, GateResult, Interval, Verdict
from gates.judge.context import CaseState, JudgingContext, OutcomeCounts, SettledVerdict, settle
from gates.judge.formatting import interval_method, percent, plural, points
from gates.judge.sequential import judge_sequence, span
from gates.policy.policy import SELF_COMPARISON, CompareRule, GateRules
from gates.stats.plans import compare_plan, fails, tango_lower, tango_upper
from gates.stats.sequential import Unit


@dataclass(frozen=True, slots=True)
class PairCounts:
    """The pairs of one stage: certain losses and wins, and how many more the unknown outcomes could add."""

    count: OutcomeCounts
    lost: int
    won: int
    could_lose: int
    could_win: int
    flips: tuple[Flip, ...]

    @property
    def known(self) -> int:
        """The number of pairs with two known outcomes."""
        return self.count.ok + self.count.bad

    def __add__(self, other: "PairCounts") -> "PairCounts":
        names = (field.name for field in fields(self))
        return PairCounts(*(getattr(self, name) + getattr(other, name) for name in names))


def count_pairs(candidate: Mapping[str, CaseState], baseline: Mapping[str, CaseState]) -> PairCounts:
    """Pair both arms' states of the same cases. In `count` a flip is bad and an agreement ok."""
    ok = lost = missing = could_lose = could_win = 0
    flips: list[Flip] = []
    for case, ours in candidate.items():
        theirs = baseline[case]
        if ours == "missing" or theirs == "missing" or ours == "lost" or theirs == "lost":
            missing += "missing" in (ours, theirs)
            lost += "missing" not in (ours, theirs)
            could_lose += ours != "ok" and theirs != "bad"
            could_win += ours != "bad" and theirs != "ok"
        elif ours == theirs:
            ok += 1
        else:
            flips.append(Flip(case, ours, theirs))
    worse = sum(flip.candidate == "bad" for flip in flips)
    count = OutcomeCounts(ok, len(flips), lost, missing)
    return PairCounts(count, worse, len(flips) - worse, could_lose, could_win, tuple(flips))


def judge_compare(context: JudgingContext, name: str, gate: GateRules, rule: CompareRule) -> GateResult:
    """Rule C: not worse than the baseline by more than the margin, by Tango's bounds; in a sequential run by bets on conversations."""
    judged = _compare_in_sequence if context.talks else _compare_by_stages
    settled, seen, loss, bound, until = judged(context, name, rule)
    settled, sure = _require_usable_baseline(context, name, settled), ""
    if bound and bound.low is not None and bound.high is not None:
        worse = f"at most {points(bound.high, 'up')} points worse" if bound.high > 0 else "not worse"
        over = f"more than {points(bound.low, 'down')} points worse" if bound.low > rule.margin else ""
        sure = context.surely(over or worse)
    said = "not compared with the baseline" if loss is None else _change_text(loss)
    pairs = f"{seen.lost} lost, {seen.won} won of {plural(seen.known, 'prompt')}"
    sentence = settled.sentence(
        said, pairs, sure, f"limit: {points(rule.margin)}", gate.tier, until=f"{until} are asked"
    )
    return GateResult(
        name, "compare", gate.tier, settled.verdict, seen.known, seen.lost, loss, bound, rule.margin, "share", sentence,
        settled.extend, flips=seen.flips,
    )  # fmt: skip


_Compared = tuple[SettledVerdict, PairCounts, float | None, Interval | None, str]


def _compare_in_sequence(context: JudgingContext, name: str, rule: CompareRule) -> _Compared:
    """The mean of 1 for a win, 0 for a loss and 1/2 otherwise; a loss of `margin` is (1 - margin) / 2."""
    ours, theirs = context.states("candidate", name, 1), context.states("baseline", name, 1)

    def value(case: str) -> Unit | None:
        mine, its = span(ours[case]), span(theirs[case])
        return mine and its and ((1.0 + mine[0] - its[1]) / 2.0, (1.0 + mine[1] - its[0]) / 2.0)

    found = judge_sequence(context, (1.0 - rule.margin) / 2.0, ours, value)
    seen = count_pairs({case: ours[case] for case in found.cases}, theirs)
    loss, bound = None if found.mean is None else 1.0 - 2.0 * found.mean, found.interval
    if bound and bound.low is not None and bound.high is not None:
        bound = replace(bound, low=1.0 - 2.0 * bound.high, high=1.0 - 2.0 * bound.low)
    return found.settled, seen, loss, bound, "more prompts"


def _compare_by_stages(context: JudgingContext, name: str, rule: CompareRule) -> _Compared:
    first, second = (
        count_pairs(context.states("candidate", name, stage), context.states("baseline", name, stage))
        for stage in (1, 2)
    )
    short = max(0, rule.n - first.count.n)
    first += PairCounts(OutcomeCounts(missing=short), 0, 0, short, short, ())
    level, late = context.policy.level(rule.n, rule.n_max), second.count
    late = late if rule.n_max > rule.n else OutcomeCounts()
    plan = compare_plan(first.count.n, rule.margin, late.n, level)
    best = (first.lost, first.won + first.could_win), (second.lost, second.won + second.could_win)
    worst = (first.lost + first.could_lose, first.won), (second.lost + second.could_lose, second.won)
    settled, asked = settle(plan.judge, best, worst, first.count, late, context.policy.run.max_lost)
    seen, bound = first + second if asked and not settled.early else first, None
    if n := seen.count.n - seen.count.missing:
        # Unknown pairs count as losses in the upper bound and as wins in the lower.
        could_lose, could_win = (min(could, seen.count.lost) for could in (seen.could_lose, seen.could_win))
        high = tango_upper(seen.lost + could_lose, seen.won, n, level)
        low = tango_lower(seen.lost, seen.won + could_win, n, level)
        confidence = context.policy.confidence
        bound = Interval(low, high, confidence, interval_method("Tango", level, confidence))
    loss = (seen.lost - seen.won) / seen.known if seen.known else None
    return settled, seen, loss, bound, plural(late.n, "more prompt")


def _require_usable_baseline(context: JudgingContext, name: str, settled: SettledVerdict) -> SettledVerdict:
    """Make the verdict inconclusive unless the baseline is the same model and agrees with itself."""
    if not context.measurements.lineage:
        why = f"the baseline is another model, or not shown to be the same: {context.measurements.lineage.reason}"
        return SettledVerdict(Verdict.INCONCLUSIVE, why=why)
    if settled.verdict is Verdict.FAIL:
        return settled
    if not context.measurements.baseline:
        return SettledVerdict(Verdict.INCONCLUSIVE, settled.extend, "the baseline was not asked")
    trouble = noise_problem(context, name)
    if not trouble:
        return settled
    # Before the A/A run, an undecided comparison can already request its extension.
    return SettledVerdict(Verdict.INCONCLUSIVE, settled.extend and not context.measurements.again, trouble)


def _change_text(worse: float) -> str:
    if not worse:
        return "as good as the baseline"
    return f"{points(abs(worse))} points {'worse' if worse > 0 else 'better'} than the baseline"


def _self_comparison(context: JudgingContext, name: str) -> PairCounts:
    """The baseline against itself, over the prompts of stage 1 that were asked again."""
    again = context.states("again", name, 1)
    asked = {case: state for case, state in again.items() if state != "missing"}
    return count_pairs(asked, context.states("baseline", name, 1))


def noise_problem(context: JudgingContext, name: str) -> str:
    """Why the A/A run makes a gate's comparison unusable; "" if it does not."""
    same, noise = context.policy.same, _self_comparison(context, name)
    asked, lost = noise.count.n, noise.count.open
    if asked < same.n:
        return f"A/A has {asked} prompts of {name}, and needs {same.n}"
    if lost > context.policy.run.max_lost * asked:
        return f"A/A lost {lost} of {asked} answers of {name}: no reply came, or no ruling on it"
    flips, rule = (noise.count.bad + lost) / asked, context.policy.gates[name].compare
    if flips > same.max_flips:
        return (
            f"the baseline disagrees with itself on {percent(flips)} of {name} prompts "
            f"(limit: {percent(same.max_flips)}); more prompts help, a wider margin does not"
        )
    loses = rule and fails(noise.lost, noise.won, noise.known, rule.margin, context.policy.confidence)
    return f"it lost to itself on {name}" if loses else ""


def judge_self_comparison(context: JudgingContext) -> ControlResult | None:
    """The A/A control: the baseline has to pass against itself. None if it was not asked again."""
    gates = context.policy.gates.items()
    names = [name for name, gate in gates if gate.compare and gate.tier != "advisory"]
    if not names or not context.measurements.again:
        return None
    troubles = {name: trouble for name in names if (trouble := noise_problem(context, name))}
    flips = ", ".join(f"{name} {_self_comparison(context, name).count.bad}" for name in names)
    said = "; ".join(troubles.values()) or f"the baseline agrees with itself (flips: {flips})"
    verdict = Verdict.FAIL if troubles else Verdict.PASS
    return ControlResult(
        SELF_COMPARISON, Verdict.PASS, verdict, tuple(troubles), f"{SELF_COMPARISON}: {said}"
    )
