"""Counts results, and finds the verdict that holds despite lost answers. Pure.

Each rule is applied as if every lost answer had been good, and as if every one had been bad; if they differ, the verdict is
inconclusive. Missing answers can confirm a failure and never a pass.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gates.contracts.verdict import Outcome, Tier, Verdict
from gates.judge.formatting import percent, undecided_clause

CaseState = Outcome | Literal["missing"]


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """The number of cases by outcome."""

    ok: int = 0
    bad: int = 0
    lost: int = 0
    missing: int = 0

    @property
    def n(self) -> int:
        """The number of cases that there should be."""
        return self.ok + self.bad + self.lost + self.missing

    @property
    def open(self) -> int:
        """The number of cases with an unknown outcome."""
        return self.lost + self.missing

    def __add__(self, other: "OutcomeCounts") -> "OutcomeCounts":
        return OutcomeCounts(
            self.ok + other.ok, self.bad + other.bad, self.lost + other.lost, self.missing + other.missing
        )


def count_outcomes(found: Iterable[CaseState]) -> OutcomeCounts:
    listed = list(found)
    return OutcomeCounts(*(listed.count(state) for state in ("ok", "bad", "lost", "missing")))


def was_asked(second: OutcomeCounts) -> bool:
    """Whether any case of the second stage was asked."""
    return second.n > second.missing


@dataclass(frozen=True, slots=True)
class SettledVerdict:
    """A verdict; `extend` requests the second stage; `why` is the reason of an inconclusive one."""

    verdict: Verdict
    extend: bool = False
    why: str = ""

    def sentence(
        self, said: str, numbers: str, sure: str, limit: str, tier: Tier, *, cases: str = "", until: str = ""
    ) -> str:
        """A rule in words: what was found, its numbers, the bound of which one is `sure` (unless answers are missing), the limit, the
        bad cases, and why or until when it is undecided.
        """
        inside = "; ".join(filter(None, (numbers, "" if self.why else sure, limit)))
        end = undecided_clause(tier, until) if self.extend else f"; {self.why}" if self.why else ""
        return f"{said} ({inside}){cases}{end}"


def settle(
    best: Callable[[bool], Verdict],
    worst: Callable[[bool], Verdict],
    first: OutcomeCounts,
    second: OutcomeCounts | None,
    max_lost: float,
) -> SettledVerdict:
    """The verdict that holds whatever the unknown answers would have been. `best` and `worst` judge as if they had been good or bad,
    with the second stage if called with True. `second` is None if it was not asked.
    """
    more = second is not None
    if best(more) is Verdict.FAIL:
        return SettledVerdict(Verdict.FAIL)
    seen, late = first + second if second else first, worst(more)
    if first.missing:
        why = f"{first.missing} of {first.n} have no result"
    elif seen.lost > max_lost * seen.n:
        share = percent(seen.lost / seen.n)
        why = f"{seen.lost} of {seen.n} answers were lost ({share}); limit: {percent(max_lost)}"
    elif late is Verdict.PASS and (worst(False) is Verdict.PASS or not (second and second.missing)):
        return SettledVerdict(Verdict.PASS)
    elif second is not None and second.missing:
        why = f"{second.missing} of the {second.n} of the extension have no result"
    elif late is Verdict.INCONCLUSIVE:
        return SettledVerdict(Verdict.INCONCLUSIVE, extend=True)
    else:
        why = f"{seen.lost} of {seen.n} answers were lost, and they could decide"
    return SettledVerdict(Verdict.INCONCLUSIVE, why=why)
