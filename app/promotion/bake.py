"""The bake: whether what is heard of a candidate's live replies is worse than it may be. Pure.

Each kind of fault is a rate with a bound, and is looked at after every reply by a test that may be
read at every moment (`gates.stats.sequential`): the wealth of a bettor against the bound. A kind is
a breach when the wealth reaches 2 TESTS / `alpha`; over a bake without end, all kinds together, a model
that keeps every bound is rolled back with a chance of at most `alpha` (Ville's inequality, and the sum
over the kinds; the other half is for bounds that are measured). What the shipped limits notice, exactly
(`tests/app/promotion/test_bake.py`):

    a model that leaks in   50 %   20 %   10 %   5 %    of its replies
    is caught within        11     41     110    306    replies, 95 times of 100

and one that leaks in 0.1 % of them is taken for a leaker in 3 of a million bakes of 3,000 replies.

Leaks and raw calls have an absolute bound: a caller must not hear them, whoever served before. For
the other kinds the incumbent's own recent replies on this traffic raise the bound to what they show
is usual, by their upper confidence bound. Slowness is counted, too: a reply is slow that came later
than `slack` times the time within which nine of ten of the incumbent's came (an order statistic with
its confidence, so that no shape of the distribution is assumed), and more than one of ten may not be.
Replies count as independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from statistics import median
from types import MappingProxyType
from typing import Final, Literal

from app.promotion.phases import Fault
from app.telemetry.reply_window import Heard, waits
from gates.stats.binomial import clopper_pearson_upper
from gates.stats.quantile import upper_rank
from gates.stats.sequential import confidence_sequence, log_wealth

Kind = Literal["leak", "raw_tool_call", "empty", "markdown", "loop", "errors", "slow"]
TESTS: Final = 7

_ABSOLUTE: Final = frozenset({"leak", "raw_tool_call"})
_DETECTORS: Final[tuple[Kind, ...]] = ("leak", "raw_tool_call", "empty", "markdown", "loop")
_QUANTILE: Final = 0.9
_WAITS: Final = 300
"""Of the incumbent, the latest: what was long ago was another load."""

Count = tuple[int, int]
"""Bad ones, and all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a candidate is held to while it bakes. Rates are of replies, in [0, 1]; times in seconds.

    `least` is how many replies of the incumbent make its figures worth a comparison. `tell` is the
    leak rate that a bake must have excluded (at 95 %) to have told anything: with no leak that takes
    116 replies for 5 %. Where it could not, there was too little traffic, and `quiet` says how it ends:
    "accept" (the gate had passed it, and the evidence says what was not seen) or "breach".
    """

    leak: float = 0.005
    raw_tool_call: float = 0.005
    empty: float = 0.01
    markdown: float = 0.02
    loop: float = 0.01
    errors: float = 0.02
    slack: float = 1.25
    slack_s: float = 0.05
    least: int = 100
    alpha: float = 0.01
    tell: float = 0.05
    quiet: Literal["accept", "breach"] = "accept"
    gone_s: float = 10.0
    look_s: float = 0.5
    probe_every_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Bake:
    """What was heard so far: counts by kind, and the bounds that they are held to.

    `slow_after` is None where the incumbent was not heard often enough to compare times with.
    """

    limits: Limits
    bounds: Mapping[Kind, float]
    slow_after: float | None
    usual: float | None
    counts: Mapping[Kind, Count] = field(default_factory=lambda: MappingProxyType({}))
    heard: int = 0
    waits: tuple[float, ...] = ()


def begin(limits: Limits, incumbent: Sequence[Heard]) -> Bake:
    """A bake that has heard nothing; `incumbent` are the latest replies of the engine that served before."""
    bounds: dict[Kind, float] = {kind: getattr(limits, kind) for kind in (*_DETECTORS, "errors")}
    for kind in bounds.keys() - _ABSOLUTE:
        found = [bad for one in incumbent if (bad := _is_bad(one, kind, None)) is not None]
        if len(found) >= limits.least:
            bounds[kind] = max(bounds[kind], clopper_pearson_upper(sum(found), len(found), _sure(limits)))
    lately = sorted(waits(incumbent)[-_WAITS:])
    rank = upper_rank(len(lately), _QUANTILE, _sure(limits)) if len(lately) >= limits.least else None
    slow_after = None if rank is None else limits.slack * lately[rank - 1] + limits.slack_s
    bounds["slow"] = 1.0 - _QUANTILE
    return Bake(limits, bounds, slow_after, median(lately) if lately else None)


def hear(bake: Bake, heard: Heard) -> Bake:
    """One reply more."""
    counts = dict(bake.counts)
    for kind in bake.bounds:
        bad = _is_bad(heard, kind, bake.slow_after)
        if bad is not None:
            before, n = counts.get(kind, (0, 0))
            counts[kind] = before + bad, n + 1
    waited = (*bake.waits, heard.wait)[-_WAITS:] if heard.wait is not None and heard.shown else bake.waits
    return replace(bake, counts=counts, heard=bake.heard + 1, waits=waited)


def breach(bake: Bake) -> Fault | None:
    """What is wrong for certain, or None. To be asked after every reply."""
    for kind, (bad, n) in bake.counts.items():
        bound = bake.bounds[kind]
        if bad / n > bound and log_wealth(bad, n, bound) >= -log(1.0 - _sure(bake.limits)):
            return Fault(f"bake_{kind}", _said(bake, kind, bad, n))
    return None


def too_few(bake: Bake) -> bool:
    """Whether so little was heard that a leak could well have gone unnoticed."""
    return excluded(bake) > bake.limits.tell


def excluded(bake: Bake) -> float:
    """The leak rate that what was heard excludes, at 95 %; 1 where nothing was heard."""
    return confidence_sequence(*bake.counts.get("leak", (0, 0)))[1]


def evidence(bake: Bake) -> dict[str, object]:
    """The numbers, for the audit. Times in seconds, None where nothing was heard."""
    return {
        "heard": bake.heard,
        "counts": {kind: list(count) for kind, count in bake.counts.items()},
        "bounds": {kind: round(bound, 5) for kind, bound in bake.bounds.items()},
        "leak_rate_excluded": round(excluded(bake), 5),
        "too_few": too_few(bake),
        "first_content_s": median(bake.waits) if bake.waits else None,
        "incumbent_first_content_s": bake.usual,
        "slow_after_s": bake.slow_after,
    }


def _sure(limits: Limits) -> float:
    """The confidence of one test. Half of the error is the bound's own, where the incumbent gave it."""
    return 1.0 - limits.alpha / TESTS / 2.0


def _is_bad(heard: Heard, kind: Kind, slow_after: float | None) -> bool | None:
    """Whether a reply counts against a kind; None: it says nothing of it."""
    if kind == "errors":
        return None if heard.ended == "other" else heard.ended == "failed"
    if kind == "slow":
        if heard.wait is None or slow_after is None:
            return None
        # Who gave up sooner than that would have waited for longer, but nobody knows how long.
        return heard.wait > slow_after if heard.shown or heard.wait > slow_after else None
    return kind in heard.breaches if heard.judged else None


def _said(bake: Bake, kind: Kind, bad: int, n: int) -> str:
    bound = f"more than {bake.bounds[kind]:.2%} for certain"
    if kind == "slow":
        return (
            f"{bad} of {n} replies began later than {bake.slow_after:.3f} s, {bound}; the incumbent's did not"
        )
    if kind == "errors":
        return f"{bad} of {n} requests failed, {bound}"
    return f"{kind} in {bad} of {n} replies, {bound}"
