"""Compares two engines on the same records: their tool calls and their breaches of manners. Pure.

The comparison is advisory, for recorded requests have no known right answers, and are redacted. The gate decides
(`manners gate`). Bounds are over conversations and hold however often one looks (`gates.stats.sequential`), each at 95 %.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, Literal

from app.shadow.record import RecordedCall, ShadowRecord
from app.shadow.replay import ReplayedReply
from gates.contracts.case import conversations
from gates.stats.sequential import mean_bounds

AGREES: Final = 0.9
"""The share of equal calls from which on engines agree."""
MARGIN: Final = 0.05
"""The largest increase of breaches, as a share of the records, that counts as none."""
SHOWN: Final = 5
"""The most differing records that are listed."""

ComparisonWord = Literal["alike", "differs", "worse", "open"]


@dataclass(frozen=True, slots=True)
class Share:
    """`k` of `n` records, and the bounds; None if `n` is 0."""

    k: int
    n: int
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Paired:
    """Records with a breach in the replies of each engine. `more` is the candidate's share minus the baseline's, with its bounds."""

    n: int
    candidate: int
    baseline: int
    only_candidate: int
    only_baseline: int
    more: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class DifferingRecord:
    """A record whose replies differ: its id, and each engine's calls and breaches."""

    id: str
    candidate: str
    baseline: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole comparison. `calls` counts every record, `with_calls` those where an engine called a tool."""

    candidate: str
    baseline: str
    records: int
    unusable: int
    lost: int
    calls: Share
    with_calls: Share
    breaches: Paired
    detectors: dict[str, tuple[int, int]]
    others: tuple[DifferingRecord, ...]
    word: ComparisonWord
    verdict: str


ReplayTrio = tuple[ShadowRecord, ReplayedReply, ReplayedReply]
"""A record, and the replies of the candidate and of the baseline."""


def compare(trios: Sequence[ReplayTrio], *, candidate: str, baseline: str, unusable: int = 0) -> Comparison:
    """Compare the records that both engines answered."""
    known = [trio for trio in trios if not trio[1].lost and not trio[2].lost]
    calls, breaches = _share(known), _paired(known)
    with_calls = _share([trio for trio in known if trio[1].calls or trio[2].calls])
    word, verdict = judge(with_calls if with_calls.n else calls, breaches)
    if known and not with_calls.n:
        verdict += "; neither called anything"
    return Comparison(
        candidate=candidate,
        baseline=baseline,
        records=len(known),
        unusable=unusable,
        lost=len(trios) - len(known),
        calls=calls,
        with_calls=with_calls,
        breaches=breaches,
        detectors=_detectors(known),
        others=tuple(islice(_others(known), SHOWN)),
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
    if calls.low is None or calls.high is None or breaches.low is None or breaches.high is None:
        return "open", "there was nothing to compare"
    if breaches.low > 0:
        more = f"{breaches.candidate} of {n} replies are breaches, and {breaches.baseline} of the baseline's"
        tail = "; its calls differ, too" if calls.high < AGREES else ""
        return "worse", f"the candidate's manners are worse: {more}{tail}"
    if calls.high < AGREES:
        return "differs", f"the candidate calls otherwise: the same in {calls.k} of {calls.n}"
    if breaches.high <= MARGIN and calls.low >= AGREES:
        return "alike", "the candidate calls the same, and its manners are no worse"
    seen = f"calls agree in {calls.k} of {calls.n}, breaches are {breaches.candidate} and {breaches.baseline}"
    is_good = calls.k == calls.n and breaches.only_candidate <= breaches.only_baseline
    what = "nothing speaks against the candidate so far" if is_good else "look at those where they differ"
    return "open", f"too few records for a verdict ({seen} of {n}); {what}"


def as_json(found: Comparison) -> dict[str, Any]:
    """For scripts: shares and counts."""
    counts = {
        name: {"candidate": ours, "baseline": theirs} for name, (ours, theirs) in found.detectors.items()
    }
    return {**asdict(found), "detectors": counts}


def _canonical(call: RecordedCall) -> str:
    return json.dumps([call.name, _plain(call.arguments)], sort_keys=True)


def _plain(value: Any) -> Any:
    """Normalize numbers: those that are equal become equal as text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _share(known: Sequence[ReplayTrio]) -> Share:
    same = [agree(ours.calls, theirs.calls) for _, ours, theirs in known]
    return Share(sum(same), len(same), *(_bounds(known, same) if same else (None, None)))


def _bounds(known: Sequence[ReplayTrio], values: Iterable[float]) -> tuple[float, float]:
    """The bounds of the mean over conversations of the values, which are the records' and in [0, 1]."""
    talks = conversations({record.id: record.request.get("messages", ()) for record, _, _ in known})
    found: dict[str, list[float]] = {}
    for (record, _, _), value in zip(known, values, strict=True):
        found.setdefault(talks[record.id], []).append(value)
    return mean_bounds([(sum(of) / len(of),) * 2 for of in found.values()])


def _paired(known: Sequence[ReplayTrio]) -> Paired:
    both = [(bool(ours.breaches), bool(theirs.breaches)) for _, ours, theirs in known]
    n = len(both)
    if not n:
        return Paired(0, 0, 0, 0, 0, None, None, None)
    worse, better, same = map(both.count, ((True, False), (False, True), (True, True)))
    low, high = _bounds(known, [(1.0 + theirs - ours) / 2.0 for ours, theirs in both])
    more = (worse - better) / n
    return Paired(n, worse + same, better + same, worse, better, more, 1.0 - 2.0 * high, 1.0 - 2.0 * low)


def _detectors(known: Sequence[ReplayTrio]) -> dict[str, tuple[int, int]]:
    ours = Counter(name for _, reply, _ in known for name in reply.breaches)
    theirs = Counter(name for _, _, reply in known for name in reply.breaches)
    return {name: (ours[name], theirs[name]) for name in sorted(ours | theirs)}


def _others(known: Sequence[ReplayTrio]) -> Iterable[DifferingRecord]:
    for record, ours, theirs in known:
        if not agree(ours.calls, theirs.calls) or ours.breaches - theirs.breaches:
            yield DifferingRecord(record.id, _told(ours), _told(theirs))


def _told(reply: ReplayedReply) -> str:
    calls = [f"{call.name}({_arguments(call.arguments)})" for call in reply.calls]
    return "; ".join([*calls, *sorted(reply.breaches)]) or "spoke"


def _arguments(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
