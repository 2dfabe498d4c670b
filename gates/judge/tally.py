"""Results counted against what should be there, and the verdict that lost answers leave possible.

A lost answer (a transport fault that outlived its retries) is no judgement. Each rule is asked
twice: as if every lost answer had been good, and as if every one had been bad. What fails even in
the best case fails; what passes even in the worst case passes; between the two nothing is known. An
answer that is missing, because nobody asked or nobody wrote it down, can still make a failure
certain, and never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gates.contracts.case import Suite
from gates.contracts.errors import SamplesError
from gates.contracts.verdict import CaseResult, Outcome, Verdict
from gates.judge.words import percent

State = Outcome | Literal["missing"]
Results = Mapping[tuple[str, str], CaseResult]


def indexed(results: Iterable[CaseResult], suite: Suite) -> Results:
    """Results by (gate, case). Raises SamplesError for one that is there twice, or is not the suite's."""
    asked = {case.id for case in suite.cases}
    found: dict[tuple[str, str], CaseResult] = {}
    for result in results:
        key = (result.gate, result.case)
        if key in found:
            raise SamplesError(f"{result.case} has two results for {result.gate}; one prompt, one result")
        if result.case not in asked:
            raise SamplesError(
                f"{result.case} is no case of suite {suite.name}; it is another suite's result"
            )
        found[key] = result
    return found


def states(results: Results, suite: Suite, gate: str, stage: int) -> dict[str, State]:
    """The state of every case of a gate in a stage, in the suite's order."""
    return {
        case.id: results[gate, case.id].outcome if (gate, case.id) in results else "missing"
        for case in suite.of(gate, stage)
    }


@dataclass(frozen=True, slots=True)
class Count:
    """How many cases came out how."""

    ok: int = 0
    bad: int = 0
    lost: int = 0
    missing: int = 0

    @property
    def n(self) -> int:
        """All that there should be."""
        return self.ok + self.bad + self.lost + self.missing

    @property
    def open(self) -> int:
        """Those that nobody knows of."""
        return self.lost + self.missing

    def __add__(self, other: Count) -> Count:
        return Count(
            self.ok + other.ok, self.bad + other.bad, self.lost + other.lost, self.missing + other.missing
        )


def count(found: Iterable[State]) -> Count:
    """The states, counted."""
    listed = list(found)
    return Count(*(listed.count(state) for state in ("ok", "bad", "lost", "missing")))


def asked(second: Count) -> bool:
    """Whether the second stage was asked at all."""
    return second.n > second.missing


@dataclass(frozen=True, slots=True)
class Settled:
    """A verdict; `extend` asks for the second stage; `why` is the clause for an inconclusive one."""

    verdict: Verdict
    extend: bool = False
    why: str = ""


def settle(
    best: Callable[[bool], Verdict],
    worst: Callable[[bool], Verdict],
    first: Count,
    second: Count | None,
    max_lost: float,
) -> Settled:
    """The verdict that holds however the unknown answers would have come out.

    `best` and `worst` judge as if every unknown answer had been good, or bad; with True they count
    the second stage too. `second` is None where it was not asked.
    """
    more = second is not None
    if best(more) is Verdict.FAIL:
        return Settled(Verdict.FAIL)
    if first.missing:
        return Settled(Verdict.INCONCLUSIVE, why=f"{first.missing} of {first.n} have no result")
    seen = first + second if second else first
    if seen.lost > max_lost * seen.n:
        return Settled(Verdict.INCONCLUSIVE, why=_lost(seen, max_lost))
    if worst(False) is Verdict.PASS and worst(more) is Verdict.PASS:
        return Settled(Verdict.PASS)
    if second is not None and second.missing:
        why = f"{second.missing} of the {second.n} of the extension have no result"
        return Settled(Verdict.INCONCLUSIVE, why=why)
    if worst(more) is Verdict.PASS:
        return Settled(Verdict.PASS)
    if worst(more) is Verdict.INCONCLUSIVE:
        return Settled(Verdict.INCONCLUSIVE, extend=True)
    return Settled(
        Verdict.INCONCLUSIVE, why=f"{seen.lost} of {seen.n} answers were lost, and they could decide"
    )


def _lost(seen: Count, max_lost: float) -> str:
    return (
        f"{seen.lost} of {seen.n} answers were lost to transport faults ({percent(seen.lost / seen.n)}); "
        f"at most {percent(max_lost)} may be"
    )
