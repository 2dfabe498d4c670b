"""The bake: whether a candidate's live replies break a limit. Pure; the `watch` step feeds it.

Each kind of fault has a rate with a bound, which is tested after every reply (`gates.stats.sequential`). A kind is
a breach when the bettor's wealth reaches 2 TESTS / `alpha`: over a bake of any length and all kinds together, a model
that keeps every bound is rolled back with probability at most `alpha` (the other half of `alpha` is for bounds that
are measured on the incumbent). Exact figures for the shipped limits (`tests/app/promotion/test_bake.py`): a model that
leaks in 50, 20, 10 or 5 % of its replies is caught within 11, 42, 110 or 306 of them, with probability 0.95; one that
leaks in 0.1 % is rolled back for it in 3 of a million bakes of 3,000 replies.

Leaks, raw tool calls and broken templates have an absolute bound, whatever the incumbent did. For the other kinds the bound is
raised to what is usual on this traffic: the upper confidence bound of the incumbent's recent rate. A reply is slow if its
first content came later than `slow_factor` times the incumbent's 90th percentile (an order statistic with its confidence);
at most one in ten may be. Replies count as independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from statistics import median
from typing import Final

from app.promotion.state_machine import FailureReason
from app.telemetry.reply_window import ReplyOutcome, waits
from gates.stats.binomial import clopper_pearson_upper
from gates.stats.plans import upper_rank
from gates.stats.sequential import log_wealth, lower_bound

_QUANTILE: Final = 0.9
_ABSOLUTE: Final = dict.fromkeys(("leak", "raw_tool_call", "broken_template"), 0.005)
BOUNDS: Final = {
    **_ABSOLUTE, "empty": 0.01, "markdown": 0.02, "loop": 0.01, "errors": 0.02, "slow": 1.0 - _QUANTILE
}  # fmt: skip
"""The kinds of faults, and the bound of each one's rate as a share of the replies."""
TESTS: Final = len(BOUNDS)
ALPHA: Final = 0.01
_WAITS: Final = 300
"""How many of the incumbent's latest times count: older ones were under another load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BakeLimits:
    """The limits of a bake beside the bounds of its rates. Rates are of replies, in [0, 1]; times in seconds.

    `least` is the number of the incumbent's replies from which its figures are compared with.

    `enough` is the number of replies that a candidate must have served. With some traffic, but less, the bake takes up
    to twice its time; then the candidate must at least have served more requests than it failed. Without any traffic
    the bake ends on time. `extend_s` bounds the wait for a candidate that is not well at the end, and for the last probe.
    """

    slow_factor: float = 1.25
    slow_grace_s: float = 0.05
    least: int = 100
    alpha: float = ALPHA
    gone_s: float = 10.0
    look_s: float = 0.25
    probe_every_s: float = 60.0
    enough: int = 10
    extend_s: float = 600.0

    @property
    def confidence(self) -> float:
        """The confidence of one test. Half of the error is for a bound that was measured on the incumbent."""
        return 1.0 - self.alpha / TESTS / 2.0


@dataclass(frozen=True, slots=True)
class Bake:
    """The bad replies so far and all that count, by kind, and the bounds of their rates.

    `slow_after` is None if the incumbent had too few replies to compare times with; `usual` is its median time.
    """

    limits: BakeLimits
    bounds: Mapping[str, float]
    slow_after: float | None
    usual: float | None
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    replies: int = 0


def begin(limits: BakeLimits, incumbent: Sequence[ReplyOutcome]) -> Bake:
    """A bake without replies yet; `incumbent` are the latest replies of the engine that served before."""
    bounds = dict(BOUNDS)
    for kind in bounds.keys() - _ABSOLUTE.keys():
        found = [bad for one in incumbent if (bad := _is_bad(one, kind, None)) is not None]
        if len(found) >= limits.least:
            usual = clopper_pearson_upper(sum(found), len(found), limits.confidence)
            bounds[kind] = max(bounds[kind], usual)
    lately = sorted(waits(incumbent)[-_WAITS:])
    rank = upper_rank(len(lately), _QUANTILE, limits.confidence) if len(lately) >= limits.least else None
    slow_after = None if rank is None else limits.slow_factor * lately[rank - 1] + limits.slow_grace_s
    return Bake(limits, bounds, slow_after, median(lately) if lately else None)


def add(bake: Bake, reply: ReplyOutcome) -> Bake:
    """The bake after one more reply."""
    counts = dict(bake.counts)
    for kind in bake.bounds:
        bad = _is_bad(reply, kind, bake.slow_after)
        if bad is not None:
            before, n = counts.get(kind, (0, 0))
            counts[kind] = before + bad, n + 1
    return replace(bake, counts=counts, replies=bake.replies + 1)


def breach(bake: Bake) -> FailureReason | None:
    """The limit that is broken with confidence, or None. To be called after every reply."""
    needed = -log(1.0 - bake.limits.confidence)
    for kind, (bad, n) in bake.counts.items():
        bound = bake.bounds[kind]
        if bad / n > bound and log_wealth({1.0: bad, 0.0: n - bad}, bound) >= needed:
            what = f"{kind} in {bad} of {n} replies"
            if kind == "slow":
                what = f"{bad} of {n} replies began later than {bake.slow_after or 0.0:.3f} s"
            return FailureReason(f"bake_{kind}", f"{what}, more than {bound:.2%} for certain")
    return None


def evidence(bake: Bake) -> dict[str, object]:
    """The figures for the audit: with few replies, only a large `leak_rate_excluded`. Times in seconds."""
    bad, n = bake.counts.get("leak", (0, 0))
    excluded = 1.0 - lower_bound({1.0: n - bad, 0.0: bad})
    return {
        "heard": bake.replies,
        "counts": {kind: list(count) for kind, count in bake.counts.items()},
        "bounds": {kind: round(bound, 5) for kind, bound in bake.bounds.items()},
        "leak_rate_excluded": round(excluded, 5),
        "incumbent_first_content_s": bake.usual,
        "slow_after_s": bake.slow_after,
    }


def unserved(replies: Sequence[ReplyOutcome], enough: int, may_wait: bool) -> FailureReason | None:
    """Why these replies are too few for a bake to end; None: they are enough. `may_wait`: more may still come."""
    failed = sum(one.ended == "failed" for one in replies)
    left = [one for one in replies if one.ended == "other"]
    served = sum(one.ended == "ok" for one in replies) + len(waits(left))
    if not replies or served >= enough or (served >= failed and not may_wait):
        return None
    message = f"{served} replies were served and {failed} failed; {enough} have to be served"
    return FailureReason("bake_unserved", message)


def _is_bad(reply: ReplyOutcome, kind: str, slow_after: float | None) -> bool | None:
    """Whether a reply counts against a kind; None: it does not count for this kind."""
    if kind == "errors":
        return None if reply.ended == "other" else reply.ended == "failed"
    if kind != "slow":
        return kind in reply.breaches if reply.judged else None
    if reply.wait is None or slow_after is None:
        return None
    # How long a caller who gave up would have waited is not known.
    return reply.wait > slow_after if reply.shown or reply.wait > slow_after else None
