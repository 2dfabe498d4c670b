"""Evaluates latency samples: times in milliseconds, tokens per second, and which readings do not count. Pure.

The decode rate is (completion_tokens - 1) / (last - first), as one chunk may hold several tokens. A fault, a retry or an empty
reply is infinitely slow. A reply of whose prompt too little was cached is void.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gates.contracts.metric import METRICS
from gates.contracts.sample import BASELINE, CANDIDATE, LATENCY_PREFIX, Sample
from gates.judge.context import ArmName, Timing
from gates.reply.reply import Reply, read_reply
from gates.run.latency_schedule import LatencySlot, slot_of

_NS: Final = 1e6  # of a millisecond

CACHE_UNKNOWN: Final = (
    "the engine does not say how many tokens were cached (vLLM says it with --enable-prompt-tokens-details)"
)
MIN_DECODE_TOKENS: Final = 16
MIN_DECODE_READS: Final = 4
"""Shorter replies, or those that arrived in very few reads, have no meaningful decode rate."""
LEAST_CACHED: Final = 0.5
"""Which share of a prompt must come from the prefix cache for a reply to count."""


@dataclass(frozen=True, slots=True)
class LatencyReading:
    """One request of the latency part: times in ms, `decode` in tokens/s, None if it does not exist. `failed` says why a request
    failed, `void` why its times do not count. `thought`: reasoning came before the answer.
    """

    arm: str
    slot: LatencySlot
    ttft: float | None = None
    first_sentence: float | None = None
    decode: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    thought: bool = False
    failed: str = ""
    void: str = ""


def latency_readings(samples: Iterable[Sample], *, cache_unsaid: bool = False) -> tuple[LatencyReading, ...]:
    """The readings of all latency samples, in order. Replies without a count of cached tokens are void, unless `cache_unsaid`.
    Samples of earlier programs whose prompts were not to be cached are left out.
    """
    timed = (sample for sample in samples if sample.key.arm.startswith(LATENCY_PREFIX))
    return tuple(_reading(sample, cache_unsaid) for sample in timed if not sample.key.case.endswith(":cold"))


def _reading(sample: Sample, cache_unsaid: bool) -> LatencyReading:
    slot, reply = slot_of(sample.key.case, sample.key.repeat), read_reply(sample)
    arm, clocks, failed = sample.key.arm.removeprefix(LATENCY_PREFIX), reply.clocks, _failure(sample, reply)
    if failed:
        return LatencyReading(arm, slot, failed=failed)
    thought = clocks.reasoning is not None
    return LatencyReading(
        arm,
        slot,
        ttft=_ms(clocks.visible),
        first_sentence=_ms(clocks.sentence),
        decode=_decode(sample, reply),
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        thought=thought,
        void=_void_reason(reply, cache_unsaid),
    )


def _failure(sample: Sample, reply: Reply) -> str:
    """Why a request counts as failed; a successful retry does not change that."""
    for fault in (*sample.retries, *((sample.fault,) if sample.fault else ())):
        return f"{fault.kind}: {fault.detail}"
    if reply.error is not None:
        return f"error: {reply.error.message}"
    return "" if reply.clocks.visible is not None else "nothing was said"


def _void_reason(reply: Reply, cache_unsaid: bool) -> str:
    """Why a reply's times do not count; "" if they do."""
    if reply.cached_tokens is None or not reply.prompt_tokens:
        return "" if cache_unsaid else CACHE_UNKNOWN
    share = reply.cached_tokens / reply.prompt_tokens
    return "" if share >= LEAST_CACHED else f"{share:.0%} of the prompt was cached"


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / _NS


def _decode(sample: Sample, reply: Reply) -> float | None:
    """Tokens per second after the first. None for a tool call, whose tags are tokens that do not appear in the text."""
    first, last, tokens = reply.clocks.token, reply.clocks.last, reply.completion_tokens or 0
    if reply.calls or tokens < MIN_DECODE_TOKENS or first is None or last is None:
        return None
    if sum(first < read.at_ns <= last for read in sample.reads) < MIN_DECODE_READS:
        return None
    return (tokens - 1) / (last - first) * 1e9


# --------------------------------------------------------------------------------- to the judge


def bucket_label(bucket: int) -> str:
    """A bucket as in tables and policies: 500 is "0.5k"."""
    return f"{bucket / 1000:g}k"


_JUDGED: Final[Mapping[str, ArmName]] = {CANDIDATE: CANDIDATE, BASELINE: BASELINE}


def timings(readings: Iterable[LatencyReading], *, first_stage_blocks: int) -> Iterator[Timing]:
    """The judge's input: a value for each metric and request of candidate and baseline, without void readings. Blocks
    from `first_stage_blocks` on belong to the extension.
    """
    for reading in readings:
        slot, arm = reading.slot, _JUDGED.get(reading.arm)
        if arm is None or reading.void:
            continue
        stage = 2 if slot.block >= first_stage_blocks else 1
        for metric in METRICS:
            value = getattr(reading, metric)
            if value is not None or reading.failed:
                bucket = bucket_label(slot.bucket)
                yield Timing(metric, arm, slot.case, value, bucket, slot.block, slot.round, stage)


def void_summary(readings: Iterable[LatencyReading], arm: str) -> str:
    """The number of void readings of an arm and their most frequent reason; "" if there are none."""
    whys = Counter(r.void for r in readings if r.arm == arm and r.void)
    return f"{whys.total()} did not count: {whys.most_common(1)[0][0]}" if whys else ""
