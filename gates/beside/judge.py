"""From the samples of a set to what a report says of it: both arms on the same cases. Pure.

A case counts where both arms have answered it. A sample that was lost to the transport is left out with its pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from gates.beside.instructions import broken
from gates.contracts.case import Case
from gates.contracts.sample import BASELINE, CANDIDATE, Sample
from gates.detect.answers import find_wrong_answer
from gates.detect.toolcall import find_mismatch
from gates.reply.reply import Reply, read_reply
from gates.report.collectors import one_line
from gates.report.statement import BesideLoss, BesideTally
from gates.stats.paired import tango

MAX_LOSSES = 20

Outcomes = Mapping[str, Mapping[str, str]]
"""Case, then arm, to why its reply was not right; "" if it was."""


def fault(case: Case, reply: Reply) -> str:
    """Why a reply is not right, in one line; "" if it is. What cannot be judged is not right."""
    if reply.error is not None:
        return f"error: {reply.error.message}"
    if not reply.complete:
        return f"cut off: HTTP {reply.status}, finish_reason {reply.finish_reason}"
    try:
        return "; ".join(_faults(case, reply))
    except Exception as error:
        return f"the check failed on it: {type(error).__name__}: {error}"


def _faults(case: Case, reply: Reply) -> Iterator[str]:
    expect = case.expect
    if "instructions" in expect:
        names, given = zip(*expect["instructions"], strict=True)
        yield from broken(reply.content, names, given)
    if "calls" in expect:
        yield from map(str, find_mismatch(reply.calls, expect["calls"]))
    if "answer" in expect:
        yield from map(str, find_wrong_answer(reply.content, expect["answer"]))


def outcomes(cases: Iterable[Case], samples: Iterable[Sample]) -> dict[str, dict[str, str]]:
    """What became of each case, in the cases' order. Cases of neither arm are left out."""
    known = {case.id: case for case in cases}
    found: dict[str, dict[str, str]] = {name: {} for name in known}
    for sample in samples:
        if sample.key.case in known and sample.fault is None:
            case = known[sample.key.case]
            found[case.id][sample.key.arm] = one_line(fault(case, read_reply(sample)))
    return {name: arms for name, arms in found.items() if arms}


def tallies(cases: Iterable[Case], found: Outcomes) -> tuple[BesideTally, ...]:
    """Counts by kind of case, over the cases that both arms answered."""
    pairs: dict[str, list[tuple[bool, bool]]] = {}
    for case in cases:
        arms = found.get(case.id, {})
        if CANDIDATE in arms and BASELINE in arms:
            pairs.setdefault(case.turn, []).append((not arms[CANDIDATE], not arms[BASELINE]))
    return tuple(_tally(kind, Counter(seen)) for kind, seen in pairs.items())


def _tally(kind: str, seen: Counter[tuple[bool, bool]]) -> BesideTally:
    n, both, worse, better = seen.total(), seen[True, True], seen[False, True], seen[True, False]
    low, high = tango(worse, better, n)  # of the loss; the difference is its reverse
    return BesideTally(kind, n, both + better, both + worse, worse, better, round(-high, 4), round(-low, 4))


def losses(found: Outcomes) -> tuple[BesideLoss, ...]:
    """Cases that the baseline had right and the candidate has not."""
    lost = (
        BesideLoss(name, arms[CANDIDATE])
        for name, arms in found.items()
        if arms.get(CANDIDATE) and arms.get(BASELINE) == ""
    )
    return tuple(lost)[:MAX_LOSSES]
