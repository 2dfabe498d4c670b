"""Compares two engines on the same records: their tool calls and their breaches of manners. Pure.

The comparison is advisory, for recorded requests have no known right answers, and are redacted. The gate decides
(`manners gate`). Bounds are over conversations and hold however often one looks (`gates.stats.sequential`), each at 95 %.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.shadow.record import RecordedCall, ShadowRecord
from gates.contracts.case import conversations
from gates.stats.sequential import mean_bounds

AGREES: Final = 0.9
"""The share of equal calls from which on engines agree."""
MARGIN: Final = 0.05
"""The largest increase of breaches, as a share of the records, that counts as none."""

ComparisonWord = Literal["alike", "differs", "worse", "open"]


@dataclass(frozen=True, slots=True)
class ReplayedReply:
    """A reply as a caller would have received it.

    `breaches` are the names of `ReplyAudit.breaches`, and `error` if the engine failed the request.
    `lost`: the connection failed, which says nothing about the engine.
    """

    calls: tuple[RecordedCall, ...] = ()
    breaches: frozenset[str] = frozenset()
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """`k` of `n` records, and the bounds."""

    k: int = 0
    n: int = 0
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Paired:
    """Records with a breach in the replies of each engine, and the bounds of the candidate's share minus the baseline's."""

    n: int = 0
    candidate: int = 0
    baseline: int = 0
    only_candidate: int = 0
    only_baseline: int = 0
    low: float = -1.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole comparison. `calls` counts the records where an engine called a tool, or every record if none did.

    `detectors` are the breaches of each engine by name.
    """

    candidate: str
    baseline: str
    records: int
    unusable: int
    lost: int
    calls: Share
    breaches: Paired
    detectors: dict[str, dict[str, int]]
    word: ComparisonWord
    verdict: str


ReplayTrio = tuple[ShadowRecord, ReplayedReply, ReplayedReply]
"""A record, and the replies of the candidate and of the baseline."""


def compare(trios: Sequence[ReplayTrio], *, candidate: str, baseline: str, unusable: int = 0) -> Comparison:
    """Compare the records that both engines answered."""
    known = [trio for trio in trios if not trio[1].lost and not trio[2].lost]
    calls = _share([trio for trio in known if trio[1].calls or trio[2].calls] or known)
    breaches = _paired(known)
    word, verdict = judge(calls, breaches)
    ours, theirs = (Counter(name for trio in known for name in trio[side].breaches) for side in (1, 2))
    return Comparison(
        candidate=candidate,
        baseline=baseline,
        records=len(known),
        unusable=unusable,
        lost=len(trios) - len(known),
        calls=calls,
        breaches=breaches,
        detectors={
            name: {"candidate": ours[name], "baseline": theirs[name]} for name in sorted(ours | theirs)
        },
        word=word,
        verdict=verdict,
    )


def agree(ours: Iterable[RecordedCall], theirs: Iterable[RecordedCall]) -> bool:
    """Whether the calls have the same names and arguments, in any order. Arguments are compared as JSON values:
    keys have no order, 1 equals 1.0, and true does not equal 1."""
    return Counter(map(_canonical, ours)) == Counter(map(_canonical, theirs))


def judge(calls: Share, breaches: Paired) -> tuple[ComparisonWord, str]:
    """The verdict as one word, and as a sentence."""
    n = breaches.n
    if not n:
        return "open", "there was nothing to compare"
    if breaches.low > 0:
        more = f"{breaches.candidate} of {n} replies are breaches, and {breaches.baseline} of the baseline's"
        return "worse", f"the candidate's manners are worse: {more}"
    if calls.high < AGREES:
        return "differs", f"the candidate calls otherwise: the same in {calls.k} of {calls.n}"
    if breaches.high <= MARGIN and calls.low >= AGREES:
        return "alike", "the candidate calls the same, and its manners are no worse"
    seen = f"calls agree in {calls.k} of {calls.n}, breaches are {breaches.candidate} and {breaches.baseline}"
    return "open", f"too few records for a verdict ({seen} of {n})"


def _canonical(call: RecordedCall) -> str:
    return json.dumps([call.name, _plain(call.arguments)], sort_keys=True)


def _plain(value: Any) -> Any:
    """Normalize numbers: those that are equal become equal as text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _share(known: Sequence[ReplayTrio]) -> Share:
    same = [agree(ours.calls, theirs.calls) for _, ours, theirs in known]
    return Share(sum(same), len(same), *_bounds(known, same)) if same else Share()


def _paired(known: Sequence[ReplayTrio]) -> Paired:
    both = [(bool(ours.breaches), bool(theirs.breaches)) for _, ours, theirs in known]
    if not both:
        return Paired()
    worse, better, same = map(both.count, ((True, False), (False, True), (True, True)))
    low, high = _bounds(known, [(1.0 + theirs - ours) / 2.0 for ours, theirs in both])
    return Paired(len(both), worse + same, better + same, worse, better, 1.0 - 2.0 * high, 1.0 - 2.0 * low)


def _bounds(known: Sequence[ReplayTrio], values: Iterable[float]) -> tuple[float, float]:
    """The bounds of the mean over conversations of the values, which are the records' and in [0, 1]."""
    talks = conversations({record.id: record.request["messages"] for record, _, _ in known})
    found: dict[str, list[float]] = {}
    for (record, _, _), value in zip(known, values, strict=True):
        found.setdefault(talks[record.id], []).append(value)
    return mean_bounds([(sum(of) / len(of),) * 2 for of in found.values()])
