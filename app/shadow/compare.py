"""Compares two engines on the same records: their tool calls and their breaches of manners. Pure.

The comparison is advisory, for recorded requests have no known right answers, and are redacted. The gate decides
(`manners gate`). Bounds are over conversations and hold however often one looks (`gates.stats.sequential`), each at 95 %.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from app.shadow.record import ShadowRecord
from gates.contracts.case import conversations
from gates.detect.toolcall import read_arguments
from gates.stats.sequential import mean_bounds

AGREES: Final = 0.9
"""The share of equal calls from which on engines agree."""
MARGIN: Final = 0.05
"""The largest increase of breaches, as a share of the records, that counts as none."""

ComparisonWord = Literal["alike", "differs", "worse", "open"]
Call = tuple[str, str]
"""Name and arguments."""


class ReplayedReply(NamedTuple):
    """A reply as a caller would have received it.

    `breaches` are the names of `ReplyAudit.breaches`, and `error` if the engine failed the request.
    """

    calls: tuple[Call, ...] = ()
    breaches: frozenset[str] = frozenset()


class ReplayedRecord(NamedTuple):
    """A record, and the replies of both engines."""

    record: ShadowRecord
    candidate: ReplayedReply
    baseline: ReplayedReply


@dataclass(frozen=True, slots=True)
class EqualCalls:
    """The records where both engines made the same calls, of those where one made any (or of all, if none did); bounds of that share."""

    k: int
    n: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Breaches:
    """Records with a breach in the replies of each engine; bounds of the candidate's share minus the baseline's."""

    candidate: int
    baseline: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole comparison. `left_out`: records that are no valid request now, or whose connection failed.

    `detectors` are the breaches of each engine by name.
    """

    candidate: str
    baseline: str
    records: int
    left_out: int
    calls: EqualCalls
    breaches: Breaches
    detectors: dict[str, dict[str, int]]
    word: ComparisonWord
    verdict: str


def compare(
    replayed: Sequence[ReplayedRecord], *, candidate: str, baseline: str, left_out: int = 0
) -> Comparison:
    """Compare the replies to the records that both engines answered."""
    called = [one for one in replayed if one.candidate.calls or one.baseline.calls] or replayed
    same = [agree(one.candidate.calls, one.baseline.calls) for one in called]
    calls = EqualCalls(sum(same), len(same), *_bounds(called, same))
    ours, theirs = ([bool(one[side].breaches) for one in replayed] for side in (1, 2))
    low, high = _bounds(replayed, [(1.0 + a - b) / 2.0 for a, b in zip(ours, theirs, strict=True)])
    breaches = Breaches(sum(ours), sum(theirs), 2.0 * low - 1.0, 2.0 * high - 1.0)
    word, verdict = judge(len(replayed), calls, breaches)
    seen = [Counter(name for one in replayed for name in one[side].breaches) for side in (1, 2)]
    names = sorted(seen[0] | seen[1])
    detectors = {name: {"candidate": seen[0][name], "baseline": seen[1][name]} for name in names}
    return Comparison(candidate, baseline, len(replayed), left_out, calls, breaches, detectors, word, verdict)


def agree(ours: Iterable[Call], theirs: Iterable[Call]) -> bool:
    """Whether the calls have the same names and arguments, in any order. Keys of a JSON object have no order."""
    return Counter(map(_canonical, ours)) == Counter(map(_canonical, theirs))


def judge(n: int, calls: EqualCalls, breaches: Breaches) -> tuple[ComparisonWord, str]:
    """The verdict on `n` records as one word, and as a sentence."""
    if breaches.low > 0:
        more = f"{breaches.candidate} of {n} replies are breaches, and {breaches.baseline} of the baseline's"
        return "worse", f"the candidate's manners are worse: {more}"
    if calls.high < AGREES:
        return "differs", f"the candidate calls otherwise: the same in {calls.k} of {calls.n}"
    if breaches.high <= MARGIN and calls.low >= AGREES:
        return "alike", "the candidate calls the same, and its manners are no worse"
    seen = f"calls agree in {calls.k} of {calls.n}, breaches are {breaches.candidate} and {breaches.baseline}"
    return "open", f"too few records for a verdict ({seen} of {n})"


def _canonical(call: Call) -> str:
    name, arguments = call
    return json.dumps([name, read_arguments(arguments)], sort_keys=True)


def _bounds(replayed: Sequence[ReplayedRecord], values: Iterable[float]) -> tuple[float, float]:
    """The bounds of the mean over conversations of the values, which are the records' and in [0, 1]."""
    talks = conversations({record.id: record.request["messages"] for record, _, _ in replayed})
    found: dict[str, list[float]] = {}
    for (record, _, _), value in zip(replayed, values, strict=True):
        found.setdefault(talks[record.id], []).append(value)
    return mean_bounds([(sum(of) / len(of),) * 2 for of in found.values()])
