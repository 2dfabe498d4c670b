"""A run that stops when it is decided (`--sequential`): means over conversations, in the suite's order, which is random. Pure.

They are tested after each conversation (`gates.stats.sequential`), and the first decision stands. The order ends at the first
conversation without a result. A lost answer counts against both verdicts.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import chain, groupby
from statistics import fmean
from typing import NamedTuple

from gates.contracts.case import Case, Suite
from gates.contracts.verdict import Decision, Interval, Verdict
from gates.judge.context import CaseState, JudgingContext, SettledVerdict
from gates.judge.formatting import plural
from gates.stats.sequential import Unit, judge_mean, mean_bounds


class Sequence(NamedTuple):
    """One rule's decision, the cases that led to it, and their mean with its bounds (None without cases)."""

    settled: SettledVerdict
    cases: tuple[str, ...]
    mean: float | None
    interval: Interval | None


def span(state: CaseState) -> Unit | None:
    """The lowest and the highest value of a case; None if it has no result yet."""
    return None if state == "missing" else (float(state == "ok"), float(state != "bad"))


def judge_sequence(
    context: JudgingContext, least: float, cases: Iterable[str], value: Callable[[str], Unit | None]
) -> Sequence:
    """Whether the mean over conversations is at least `least`."""
    talks, units, ended, confidence = list[list[str]](), list[Unit](), True, context.policy.confidence
    for _, talk in groupby(cases, key=context.talks.__getitem__):
        talks.append(list(talk))
        values = [known for case in talks[-1] if (known := value(case)) is not None]
        if len(values) < len(talks[-1]):
            ended = False
            break
        units.append((fmean(low for low, _ in values), fmean(high for _, high in values)))
    verdict, n = judge_mean(units, least, confidence)
    open_ = verdict is Verdict.INCONCLUSIVE
    why = "undecided after all prompts of the suite" if open_ and ended else ""
    settled = SettledVerdict(verdict, open_ and not ended, why, f"decided after {plural(n, 'conversation')}")
    if not n:
        return Sequence(settled, (), None, None)
    interval = Interval(*mean_bounds(units[:n], confidence), confidence, "betting, at any time")
    used, mean = tuple(chain.from_iterable(talks[:n])), fmean(chain.from_iterable(units[:n]))
    return Sequence(settled, used, mean, interval)


def undecided_cases(decision: Decision, suite: Suite, asked: Collection[str] = ()) -> list[Case]:
    """The other cases that could still decide, in the suite's order; none once a rule that decides has failed."""
    deciding = [result for result in decision.gates if result.tier != "advisory"]
    if any(result.verdict is Verdict.FAIL for result in deciding):
        return []
    waiting = [result for result in deciding if result.verdict is Verdict.INCONCLUSIVE]
    gates = {result.gate for result in waiting if result.extend or result.rule == "zero"}
    floors = {result.gate for result in waiting if result.rule == "floor"}
    left = (case for case in suite.cases if case.id not in asked)
    return [case for case in left if gates.intersection(case.gates) or floors.intersection(case.named)]
