"""Two engines over the same records: do they call the same, and whose manners are worse? Pure.

Advisory: what callers asked lately is no suite, nobody said what is right, and the redacted prompt is
not the caller's own. A gate decides (`manners gate`); this says where to look.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final, Literal

from app.shadow.record import Call, Record
from app.shadow.replay import Said
from gates.stats.binomial import wilson
from gates.stats.paired import mid_p, tango, tango_lower, tango_upper

AGREES: Final = 0.9
"""The least share of equal calls that is called agreement, and the most that is not."""
MARGIN: Final = 0.05
"""The most more breaches, as a share of the records, that is called none."""
SHOWN: Final = 5
"""Records that are told one by one."""

Word = Literal["alike", "differs", "worse", "open"]


@dataclass(frozen=True, slots=True)
class Share:
    """`k` of `n`, with Wilson's two-sided interval of 95 %; None of nothing."""

    k: int
    n: int
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Paired:
    """Records with a breach on each side. `more` is the candidate's share less the baseline's.

    `low` and `high` are Tango's two-sided interval of it at 95 %; `p` is McNemar's one-sided mid-p.
    """

    n: int
    candidate: int
    baseline: int
    only_candidate: int
    only_baseline: int
    more: float | None
    low: float | None
    high: float | None
    p: float | None


@dataclass(frozen=True, slots=True)
class Medians:
    """A middle value of each side; None where there was nothing to measure."""

    candidate: float | None
    baseline: float | None


@dataclass(frozen=True, slots=True)
class Other:
    """A record to look at: its id, what each side called, and its breaches."""

    id: str
    candidate: str
    baseline: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it. `calls` counts every record, `with_calls` those where a side called something.

    `recorded_*` compare with what the caller got that day, from the prompt as it was and with the
    sampling of then.
    """

    candidate: str
    baseline: str
    records: int
    unusable: int
    lost: int
    calls: Share
    with_calls: Share
    recorded_candidate: Share
    recorded_baseline: Share
    breaches: Paired
    detectors: dict[str, tuple[int, int]]
    characters: Medians
    wait: Medians
    others: tuple[Other, ...]
    word: Word
    verdict: str


Trio = tuple[Record, Said, Said]
"""A record, and what the candidate and the baseline said to it."""


def compare(trios: Sequence[Trio], *, candidate: str, baseline: str, unusable: int = 0) -> Comparison:
    """The comparison over the records that both sides answered."""
    known = [trio for trio in trios if not trio[1].lost and not trio[2].lost]
    same = [agree(ours.calls, theirs.calls) for _, ours, theirs in known]
    calling = [bool(ours.calls or theirs.calls) for _, ours, theirs in known]
    calls = _share(same)
    with_calls = _share([it for it, called in zip(same, calling, strict=True) if called])
    breaches = _paired(known)
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
        recorded_candidate=_share(agree(record.calls, ours.calls) for record, ours, _ in known),
        recorded_baseline=_share(agree(record.calls, theirs.calls) for record, _, theirs in known),
        breaches=breaches,
        detectors=_detectors(known),
        characters=_medians(known, lambda it: it.characters or None),
        wait=_medians(known, lambda it: it.wait),
        others=tuple(_others(known))[:SHOWN],
        word=word,
        verdict=verdict,
    )


def agree(ours: Iterable[Call], theirs: Iterable[Call]) -> bool:
    """The same names with the same arguments, in any order. Arguments are compared as JSON values:
    keys have no order, 1 is 1.0, and true is not 1."""
    return Counter(map(_canonical, ours)) == Counter(map(_canonical, theirs))


def judge(calls: Share, breaches: Paired) -> tuple[Word, str]:
    """The verdict in a word, and in words."""
    n = breaches.n
    if not n or calls.low is None or calls.high is None:
        return "open", "there was nothing to compare"
    worse = tango_lower(breaches.only_candidate, breaches.only_baseline, n) > 0
    if worse:
        more = f"{breaches.candidate} of {n} replies are breaches, and {breaches.baseline} of the baseline's"
        tail = "; its calls differ, too" if calls.high < AGREES else ""
        return "worse", f"the candidate's manners are worse: {more}{tail}"
    if calls.high < AGREES:
        return "differs", f"the candidate calls otherwise: the same in {calls.k} of {calls.n}"
    well = tango_upper(breaches.only_candidate, breaches.only_baseline, n) <= MARGIN
    if well and calls.low >= AGREES:
        return "alike", "the candidate calls the same, and its manners are no worse"
    seen = f"calls agree in {calls.k} of {calls.n}, breaches are {breaches.candidate} and {breaches.baseline}"
    return (
        "open",
        f"too few records to tell ({seen} of {n}); nothing speaks against the candidate so far"
        if (calls.k == calls.n and breaches.only_candidate <= breaches.only_baseline)
        else f"too few records to tell ({seen} of {n}); look at those where they differ",
    )


def as_json(found: Comparison) -> dict[str, Any]:
    """For scripts: seconds, shares, counts."""
    fields = asdict(found)
    names = fields.pop("detectors")
    return {**fields, "detectors": {name: {"candidate": ours, "baseline": theirs}
                                    for name, (ours, theirs) in names.items()}}  # fmt: skip


def _canonical(call: Call) -> str:
    return json.dumps([call.name, _plain(call.arguments)], sort_keys=True)


def _plain(value: Any) -> Any:
    """Numbers that are equal as JSON, equal as text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _share(values: Iterable[bool]) -> Share:
    found = list(values)
    if not found:
        return Share(0, 0, None, None)
    return Share(sum(found), len(found), *wilson(sum(found), len(found)))


def _paired(known: Sequence[Trio]) -> Paired:
    ours = [bool(said.breaches) for _, said, _ in known]
    theirs = [bool(said.breaches) for _, _, said in known]
    b = sum(mine and not other for mine, other in zip(ours, theirs, strict=True))
    c = sum(other and not mine for mine, other in zip(ours, theirs, strict=True))
    n = len(known)
    if not n:
        return Paired(0, 0, 0, 0, 0, None, None, None, None)
    low, high = tango(b, c, n)
    return Paired(n, sum(ours), sum(theirs), b, c, (b - c) / n, low, high, mid_p(b, c))


def _detectors(known: Sequence[Trio]) -> dict[str, tuple[int, int]]:
    ours = Counter(name for _, said, _ in known for name in said.breaches)
    theirs = Counter(name for _, _, said in known for name in said.breaches)
    return {name: (ours[name], theirs[name]) for name in sorted(ours | theirs)}


def _medians(known: Sequence[Trio], of: Any) -> Medians:
    """Over the records where both sides have a value."""
    both = [(of(a), of(b)) for _, a, b in known if of(a) is not None and of(b) is not None]
    if not both:
        return Medians(None, None)
    return Medians(median(a for a, _ in both), median(b for _, b in both))


def _others(known: Sequence[Trio]) -> Iterable[Other]:
    for record, ours, theirs in known:
        if not agree(ours.calls, theirs.calls) or ours.breaches - theirs.breaches:
            yield Other(record.id, _told(ours), _told(theirs))


def _told(said: Said) -> str:
    calls = [f"{call.name}({_arguments(call.arguments)})" for call in said.calls]
    return "; ".join([*calls, *sorted(said.breaches)]) or "spoke"


def _arguments(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
