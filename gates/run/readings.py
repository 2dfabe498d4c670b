"""From latency samples to readings: milliseconds, tokens per second, and what must not count. Pure.

TTFT is the first visible text or tool call; the first sentence is what a voice waits for; decode is
(completion_tokens - 1) / (last - first), tokens by the engine's usage, never chunks, of which one
holds several under speculative decoding. A fault, a retry or an empty reply is a failed request: it
counts as infinitely slow. A reply whose cached tokens are not the regime's says nothing, and is void.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

from gates.contracts.sample import Sample
from gates.judge.outcomes import Arm, Timing
from gates.reply.reply import Reply, read_reply
from gates.run.latency import Slot, slot_of

_NS: Final = 1e6  # of a millisecond
ARM_PREFIX: Final = "latency:"

SILENT: Final = (
    "the engine does not say how many tokens were cached (vLLM says it with --enable-prompt-tokens-details)"
)
FEWEST_TOKENS: Final = 16
FEWEST_READS: Final = 4
"""A shorter reply, or one that a starved client found in a heap, has no decode rate to speak of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Which share of a prompt may, or must, come from the prefix cache for a reply to count.

    An engine that does not say how much was cached cannot be believed, unless `silent` allows it. The
    salt of a cold request proves nothing in its place: it is drawn from the seed, so a second run
    against the same vLLM, or a request asked anew after a kill, finds what the first one left.
    """

    cold_most: float = 0.05
    steady_least: float = 0.5
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """One request of the latency gate. Times in ms, `decode` in tokens/s; `prompt_tokens` by usage.

    `failed` says why a request failed, `void` why its times say nothing; both "" for a good one.
    A time is None where there is none: no sentence in a tool call, no decode rate in a short reply.
    `thought` tells that reasoning came before the answer, which is then late and not slow.
    """

    arm: str
    slot: Slot
    ttft: float | None = None
    first_sentence: float | None = None
    decode: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    thought: bool = False
    failed: str = ""
    void: str = ""

    @property
    def pair(self) -> tuple[str, int, str, int, int]:
        """What the readings of one prompt in one round of the arms have in common."""
        slot = self.slot
        return (slot.case, slot.bucket, slot.regime, slot.block, slot.round)


def readings(
    samples: Iterable[Sample],
    *,
    shares: Shares = Shares(),
    void_blocks: Mapping[int, str] | None = None,
) -> tuple[Reading, ...]:
    """The readings of all latency samples among these, in their order.

    `void_blocks` names blocks that must not count, with the reason: the engine's log has a JIT
    line, or the GPU was throttled.
    """
    taken = (sample for sample in samples if sample.key.arm.startswith(ARM_PREFIX))
    return tuple(_reading(sample, shares, void_blocks or {}) for sample in taken)


def _reading(sample: Sample, shares: Shares, void_blocks: Mapping[int, str]) -> Reading:
    slot, reply = slot_of(sample.key.case, sample.key.repeat), read_reply(sample)
    arm, clocks, failed = sample.key.arm.removeprefix(ARM_PREFIX), reply.clocks, _failed(sample, reply)
    void = void_blocks.get(slot.block, "")
    if failed:
        return Reading(arm, slot, failed=failed, void=void)
    thought = clocks.reasoning is not None
    return Reading(
        arm,
        slot,
        ttft=_ms(clocks.visible),
        first_sentence=_ms(clocks.sentence),
        decode=_decode(sample, reply),
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        thought=thought,
        void=void or _uncounted(reply, slot.regime, shares),
    )


def _failed(sample: Sample, reply: Reply) -> str:
    """Why a request counts as infinitely slow; a second try does not make good for the first."""
    for fault in (*sample.retries, *((sample.fault,) if sample.fault else ())):
        return f"{fault.kind}: {fault.detail}"
    if reply.error is not None:
        return f"error: {reply.error.message}"
    return "" if reply.clocks.visible is not None else "nothing was said"


def _uncounted(reply: Reply, regime: str, shares: Shares) -> str:
    """Why a reply is not of its regime."""
    if reply.cached_tokens is None or not reply.prompt_tokens:
        return "" if shares.silent else SILENT
    share = reply.cached_tokens / reply.prompt_tokens
    if regime == "cold" and share > shares.cold_most:
        return f"{share:.0%} of the prompt was cached, in the cold regime"
    if regime == "steady" and share < shares.steady_least:
        return f"{share:.0%} of the prompt was cached, in the steady regime"
    return ""


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / _NS


def _decode(sample: Sample, reply: Reply) -> float | None:
    """Tokens per second after the first. None for a tool call, whose tags are tokens that none sees."""
    first, last, tokens = reply.clocks.token, reply.clocks.last, reply.completion_tokens or 0
    if reply.calls or tokens < FEWEST_TOKENS or first is None or last is None:
        return None
    if sum(first < read.at_ns <= last for read in sample.reads) < FEWEST_READS:
        return None
    return (tokens - 1) / (last - first) * 1e9


# --------------------------------------------------------------------------------- to the judge


def label(bucket: int) -> str:
    """A bucket as tables and policies write it: 500 is "0.5k"."""
    return f"{bucket / 1000:g}k"


def timings(
    taken: Iterable[Reading],
    arms: Mapping[str, Arm],
    *,
    regime: str = "steady",
    first_stage_blocks: int | None = None,
) -> tuple[Timing, ...]:
    """What the judge takes: a value for each metric and request of one regime; void ones are left out.

    `arms` maps the readings' arms to the judge's. Blocks from `first_stage_blocks` on are the
    registered extension.
    """
    return tuple(
        timing
        for reading in taken
        if reading.arm in arms and reading.slot.regime == regime and not reading.void
        for timing in _timings(reading, arms[reading.arm], first_stage_blocks)
    )


def uncounted(taken: Iterable[Reading], arm: str, regime: str = "steady") -> str:
    """How many readings of an arm are void, and why most of them are; "" if none is."""
    whys = Counter(r.void for r in taken if r.arm == arm and r.slot.regime == regime and r.void)
    return f"{whys.total()} did not count: {whys.most_common(1)[0][0]}" if whys else ""


def _timings(reading: Reading, arm: Arm, first_stage_blocks: int | None) -> Iterator[Timing]:
    slot = reading.slot
    late = first_stage_blocks is not None and slot.block >= first_stage_blocks
    for metric in ("ttft", "first_sentence", "decode"):
        value = getattr(reading, metric)
        if value is not None or reading.failed:
            yield Timing(
                metric, arm, slot.case, value, label(slot.bucket), slot.block, slot.round, 2 if late else 1
            )


# ---------------------------------------------------------------------------------- for the report


@dataclass(frozen=True, slots=True)
class Slope:
    """TTFT over prompt length: `per_1k` in ms for every 1,000 tokens more, from `n` good readings."""

    arm: str
    per_1k: float
    n: int


def slope(taken: Sequence[Reading], arm: str, regime: str) -> Slope | None:
    """The median of the slopes of all pairs of readings (Theil 1950, Sen 1968); a few outliers that
    a shared host makes do not move it. None without two lengths."""
    points = [
        (reading.prompt_tokens, reading.ttft)
        for reading in _good(taken, (arm,), regime)
        if reading.prompt_tokens is not None and reading.ttft is not None
    ]
    slopes = [(y - v) / (x - u) * 1000 for (x, y), (u, v) in combinations(points, 2) if x != u]
    return Slope(arm, median(slopes), len(points)) if slopes else None


def differences(
    taken: Sequence[Reading], arm: str, other: str, regime: str, metric: str = "ttft"
) -> tuple[float, ...]:
    """`arm` minus `other`, pair by pair, where both are good: the gateway's share if one of them is
    through it and the other direct."""
    mine, its = (
        {r.pair: value for r in _good(taken, (name,), regime) if (value := getattr(r, metric)) is not None}
        for name in (arm, other)
    )
    return tuple(value - its[pair] for pair, value in mine.items() if pair in its)


def _good(taken: Iterable[Reading], arms: Collection[str], regime: str) -> Iterator[Reading]:
    for reading in taken:
        if reading.arm in arms and reading.slot.regime == regime and not (reading.void or reading.failed):
            yield reading
