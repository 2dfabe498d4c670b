"""Compares two engines on the same records: their tool calls and their breaches of manners. Pure.

The comparison is advisory, for recorded requests have no known right answers, and are redacted. The gate decides
(`manners gate`). Bounds are over conversations and hold however often one looks (`gates.stats.sequential`), each at 95 %.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
SENTENCES: Final[Mapping[ComparisonWord, str]] = {
    "alike": "the candidate calls the same, and its manners are no worse",
    "differs": "the candidate calls otherwise",
    "worse": "the candidate's manners are worse",
    "open": "too few records for a verdict",
}
Call = tuple[str, str]
"""Name and arguments."""
Bounds = tuple[float, float]


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
class Comparison:
    """The whole comparison.

    left_out: records that are no valid request now, or whose connection failed.
    calls: records where an engine called a tool (all, if none did); same: those of them with equal calls, and the bounds of their share.
    breaches: records with a breach of any detector, and of each, by engine; more: bounds of the candidate's share of them minus the baseline's.
    """

    candidate: str
    baseline: str
    records: int
    left_out: int
    calls: int
    same: int
    same_share: Bounds
    breaches: dict[str, dict[str, int]]
    more_share: Bounds
    word: ComparisonWord


def compare(
    replayed: Sequence[ReplayedRecord], *, candidate: str, baseline: str, left_out: int = 0
) -> Comparison:
    """Compare the replies to the records that both engines answered."""
    called = [one for one in replayed if one.candidate.calls or one.baseline.calls] or replayed
    same = [agree(one.candidate.calls, one.baseline.calls) for one in called]
    worse = [(1.0 + bool(one.candidate.breaches) - bool(one.baseline.breaches)) / 2.0 for one in replayed]
    low, high = _bounds(replayed, worse)
    same_share, more_share = _bounds(called, same), (2.0 * low - 1.0, 2.0 * high - 1.0)
    tallies = {
        "candidate": _tally(one.candidate for one in replayed),
        "baseline": _tally(one.baseline for one in replayed),
    }
    names = ["any", *sorted({name for tally in tallies.values() for name in tally} - {"any"})]
    return Comparison(
        candidate=candidate,
        baseline=baseline,
        records=len(replayed),
        left_out=left_out,
        calls=len(same),
        same=sum(same),
        same_share=same_share,
        breaches={name: {side: tally[name] for side, tally in tallies.items()} for name in names},
        more_share=more_share,
        word=judge(same_share, more_share),
    )


def agree(ours: Iterable[Call], theirs: Iterable[Call]) -> bool:
    """Whether the calls have the same names and arguments, in any order. Keys of a JSON object have no order."""
    return Counter(map(_canonical, ours)) == Counter(map(_canonical, theirs))


def judge(same: Bounds, more: Bounds) -> ComparisonWord:
    """The verdict, of the shares of equal calls and of more breaches."""
    if more[0] > 0:
        return "worse"
    if same[1] < AGREES:
        return "differs"
    return "alike" if more[1] <= MARGIN and same[0] >= AGREES else "open"


def _tally(replies: Iterable[ReplayedReply]) -> Counter[str]:
    """How many replies have a breach of any detector, and of each."""
    return Counter(name for reply in replies if reply.breaches for name in ("any", *reply.breaches))


def _canonical(call: Call) -> str:
    name, arguments = call
    table = read_arguments(arguments)
    return json.dumps([name, table if isinstance(table, dict) else arguments], sort_keys=True)


def _bounds(replayed: Sequence[ReplayedRecord], values: Iterable[float]) -> Bounds:
    """The bounds of the mean over conversations of the values, which are the records' and in [0, 1]."""
    talks = conversations({record.id: record.request["messages"] for record, _, _ in replayed})
    found: dict[str, list[float]] = {}
    for (record, _, _), value in zip(replayed, values, strict=True):
        found.setdefault(talks[record.id], []).append(value)
    return mean_bounds([(sum(of) / len(of),) * 2 for of in found.values()])
