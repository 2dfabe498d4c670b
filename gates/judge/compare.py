"""Rule C: prompt by prompt against the baseline, and the A/A run that says how noisy that is. Pure.

A pair counts as a loss if the baseline was right and the candidate wrong, as a win the other way.
Where an answer is unknown, the best case gives the candidate the pair and the worst case takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gates.contracts.verdict import Control, Flip, GateResult, Interval, Verdict
from gates.judge.context import Docket
from gates.judge.curves import of_compare
from gates.judge.tally import Count, Settled, State, settle
from gates.judge.words import method, percent, plural, points
from gates.policy.rules import Compare, Gate
from gates.policy.values import SAME
from gates.stats.compare import ComparePlan, fails
from gates.stats.paired import mid_p, tango_lower, tango_upper

_ALARM = 0.05  # of McNemar's mid-p; it warns and does not decide
_MORE_FLIPS = 2.0  # times as many as the baseline against itself


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of one stage: losses and wins for certain, and the most that the unknown could add."""

    count: Count
    lost: int
    won: int
    could_lose: int
    could_win: int
    flips: tuple[Flip, ...]

    @property
    def known(self) -> int:
        """The pairs of which both answers are known."""
        return self.count.ok + self.count.bad

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(
            self.count + other.count,
            self.lost + other.lost,
            self.won + other.won,
            self.could_lose + other.could_lose,
            self.could_win + other.could_win,
            self.flips + other.flips,
        )


def pairs(candidate: Mapping[str, State], baseline: Mapping[str, State]) -> Pairs:
    """Both arms' states of the same cases, paired. `count` has a flip as bad, an agreement as ok."""
    found = Pairs(Count(), 0, 0, 0, 0, ())
    for case, ours in candidate.items():
        found += _pair(case, ours, baseline[case])
    return found


def _pair(case: str, ours: State, theirs: State) -> Pairs:
    if ours == "missing" or theirs == "missing":
        count = Count(missing=1)
    elif ours == "lost" or theirs == "lost":
        count = Count(lost=1)
    elif ours == theirs:
        return Pairs(Count(ok=1), 0, 0, 0, 0, ())
    else:
        flip = (Flip(case, ours, theirs),)
        return Pairs(Count(bad=1), int(ours == "bad"), int(ours == "ok"), 0, 0, flip)
    could_lose = ours != "ok" and theirs != "bad"
    could_win = ours != "bad" and theirs != "ok"
    return Pairs(count, 0, 0, int(could_lose), int(could_win), ())


# ------------------------------------------------------------------------------------------ rule C


def judge_compare(docket: Docket, name: str, gate: Gate, rule: Compare) -> GateResult:
    """Not worse than the baseline by more than the margin, by Tango's bounds."""
    first, second = _stage(docket, name, 1), _stage(docket, name, 2)
    short = max(0, rule.n - first.count.n)
    first += Pairs(Count(missing=short), 0, 0, short, short, ())
    extended = rule.n_max > rule.n and second.count.n > second.count.missing
    more = second.count.n if rule.n_max > rule.n else 0
    level = docket.policy.level(rule.n, rule.n_max)
    plan = ComparePlan(first.count.n, rule.margin, more, level)

    def best(late: bool) -> Verdict:
        won, late_won = first.won + first.could_win, second.won + second.could_win
        return plan.judge(first.lost, won, second.lost if late else None, late_won if late else None)

    def worst(late: bool) -> Verdict:
        lost, late_lost = first.lost + first.could_lose, second.lost + second.could_lose
        return plan.judge(lost, first.won, late_lost if late else None, second.won if late else None)

    late = second.count if extended else None
    settled = settle(best, worst, first.count, late, docket.policy.run.max_lost)
    settled = _usable(docket, name, settled)
    decided = worst(False) is Verdict.PASS or best(False) is Verdict.FAIL
    seen = first + second if extended and not decided else first
    curve, words = of_compare(plan)
    return GateResult(
        gate=name,
        rule="compare",
        tier=gate.tier,
        verdict=settled.verdict,
        n=seen.known,
        bad=seen.lost,
        estimate=(seen.lost - seen.won) / seen.known if seen.known else None,
        interval=_interval(docket, rule, seen),
        limit=rule.margin,
        unit="share",
        sentence=_sentence(docket, rule, seen, more, settled),
        extend=settled.extend,
        curve=curve,
        curve_words=words,
        flips=seen.flips,
        alarms=_alarms(docket, name, seen),
    )


def _stage(docket: Docket, name: str, stage: int) -> Pairs:
    return pairs(docket.of(docket.candidate, name, stage), docket.of(docket.baseline, name, stage))


def _usable(docket: Docket, name: str, settled: Settled) -> Settled:
    """A comparison needs a baseline of the same model and a harness that agrees with itself."""
    if not docket.outcomes.lineage:
        why = f"the baseline is another model, or not shown to be the same: {docket.outcomes.lineage.reason}"
        return Settled(Verdict.INCONCLUSIVE, why=why)
    if settled.verdict is Verdict.FAIL:
        return settled
    if not docket.outcomes.baseline:
        return Settled(Verdict.INCONCLUSIVE, why="the baseline was not asked")
    trouble = noise_trouble(docket, name)
    if not trouble:
        return settled
    # Where A/A is still to be asked, an open comparison asks for its extension already.
    return Settled(Verdict.INCONCLUSIVE, settled.extend and not docket.outcomes.again, trouble)


def _interval(docket: Docket, rule: Compare, seen: Pairs) -> Interval | None:
    """Both one-sided bounds; unknown pairs count as lost in the upper and as won in the lower."""
    confidence, level = docket.policy.confidence, docket.policy.level(rule.n, rule.n_max)
    n = seen.count.n - seen.count.missing
    if not n:
        return None
    could_lose, could_win = _unknown(seen)
    high = tango_upper(seen.lost + could_lose, seen.won, n, level)
    low = tango_lower(seen.lost, seen.won + could_win, n, level)
    return Interval(low, high, confidence, method("Tango", level, confidence))


def _unknown(seen: Pairs) -> tuple[int, int]:
    """How many of the lost answers (not of the missing) could be losses, and wins, at most."""
    return min(seen.could_lose, seen.count.lost), min(seen.could_win, seen.count.lost)


def _sentence(docket: Docket, rule: Compare, seen: Pairs, more: int, settled: Settled) -> str:
    said = f"lost {seen.lost} and won {seen.won} of {seen.known} prompts against the baseline"
    bound = _interval(docket, rule, seen)
    if settled.why or bound is None or bound.low is None or bound.high is None:
        return f"{said}; {settled.why}"
    margin = points(rule.margin)
    sure = f"with {percent(docket.policy.confidence)} confidence it is"
    if settled.verdict is Verdict.PASS:
        return f"{said}; {sure} {_worse(bound.high)}, and {margin} may be"
    if settled.extend:
        decide = f"{plural(more, 'fresh prompt')} decide"
        return f"{said}; whether it is more than {margin} points worse is open, and {decide}"
    if bound.low > rule.margin:
        return f"{said}; {sure} more than {points(bound.low, 'down')} points worse, and {margin} may be"
    shown = f"{sure} at most {points(bound.high, 'up')} points worse"
    return f"{said}; that it is at most {margin} points worse was not shown: {shown}"


def _worse(high: float) -> str:
    return f"at most {points(high, 'up')} points worse" if high > 0 else "not worse"


def _alarms(docket: Docket, name: str, seen: Pairs) -> tuple[str, ...]:
    """What does not decide, and should be looked at."""
    alarms = []
    p = mid_p(seen.lost, seen.won)
    if p < _ALARM:
        alarms.append(
            f"{seen.lost} lost against {seen.won} won is more than chance gives (McNemar mid-p {p:.2g})"
        )
    noise, rate = _noise(docket, name), seen.count.bad / seen.known if seen.known else 0.0
    # No flip at all among so few is no rate to double; one is taken for the least.
    if noise.known and rate > _MORE_FLIPS * max(1, noise.count.bad) / noise.known:
        own = percent(noise.count.bad / noise.known)
        alarms.append(f"{percent(rate)} of prompts flipped, and {own} where the baseline met itself")
    return tuple(alarms)


# --------------------------------------------------------------------------------------------- A/A


def _noise(docket: Docket, name: str) -> Pairs:
    """The baseline against itself, over the prompts of stage one that were asked again."""
    again = docket.of(docket.again, name, 1)
    asked = {case: state for case, state in again.items() if state != "missing"}
    return pairs(asked, docket.of(docket.baseline, name, 1))


def noise_trouble(docket: Docket, name: str) -> str:
    """Why a gate's comparison is not usable, by the A/A run; "" if it is."""
    same, noise = docket.policy.same, _noise(docket, name)
    asked, lost = noise.known + noise.count.lost, noise.count.lost
    if asked < same.n:
        return f"A/A has {asked} prompts of {name}, and needs {same.n}"
    if lost > docket.policy.run.max_lost * asked:
        return f"A/A lost {lost} of {asked} answers of {name} to transport faults"
    flips = (noise.count.bad + lost) / asked
    if flips > same.max_flips:
        return (
            f"the baseline disagrees with itself on {percent(flips)} of {name} prompts "
            f"({percent(same.max_flips)} may be); more prompts help, a wider margin does not"
        )
    return ""


def judge_same(docket: Docket) -> Control | None:
    """The A/A control: the baseline has to pass against itself. None if it was not asked again."""
    gates = docket.policy.gates.items()
    names = [name for name, gate in gates if gate.compare and gate.tier != "advisory"]
    if not names or not docket.outcomes.again:
        return None
    troubles = [noise_trouble(docket, name) for name in names]
    worse = [name for name in names if _fails_itself(docket, name)]
    said = [text for text in troubles if text] + [f"it lost to itself on {name}" for name in worse]
    because = tuple(n for n, trouble in zip(names, troubles, strict=True) if trouble or n in worse)
    if not because:
        flips = ", ".join(f"{name} {_noise(docket, name).count.bad}" for name in names)
        sentence = f"the baseline agrees with itself (flips: {flips})"
    else:
        sentence = "; ".join(said)
    verdict = Verdict.FAIL if because else Verdict.PASS
    return Control(SAME, Verdict.PASS, verdict, because, f"{SAME}: {sentence}")


def _fails_itself(docket: Docket, name: str) -> bool:
    noise, gate = _noise(docket, name), docket.policy.gates[name]
    return bool(
        gate.compare
        and noise.known
        and fails(noise.lost, noise.won, noise.known, gate.compare.margin, docket.policy.confidence)
    )
