"""Latency: the schedule of its requests (their order, and the silence before each), and what their samples say. Pure.

Arms alternate and never run at the same time: each prompt goes A B B A, in a new random order per block, so that drift affects all
arms alike. A nonce makes every prompt new to the engine (vLLM #54227), after seconds of silence (vLLM #31602). All but its last turn is
cached, as with a caller who talks on; a reply of whose prompt too little was cached is void. Random choices are hashes of a label, so
that a run can be resumed.

The decode rate is (completion_tokens - 1) / (last - first), as one chunk may hold several tokens. A fault, a retry or an empty reply is
infinitely slow.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, TypeVar, cast

from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.contracts.sample import BASELINE, CANDIDATE, LATENCY_PREFIX, Sample
from gates.contracts.verdict import METRICS
from gates.judge.context import ArmName, Timing
from gates.policy.policy import BUCKETS
from gates.reply.reply import Reply, read_reply
from gates.run.conversation import CHARS_PER_TOKEN, SMALL_TALK, pad_conversation, with_nonce
from gates.run.request import PlannedRequest, planned_request
from gates.run.target import Arm

T = TypeVar("T")
STEADY: Final = "steady"
"""Stands in the keys of latency samples. Earlier programs also had `cold`: nothing of the prompt was cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What the latency part measures. `buckets`: prompt lengths in tokens; `first_block` continues the numbering in an extension;
    `pause_s`: the shortest and longest silence. A block asks each prompt twice per arm.
    """

    buckets: tuple[int, ...] = BUCKETS
    blocks: int = 8
    first_block: int = 0
    pause_s: tuple[float, float] = (5.0, 10.0)
    max_tokens: int = 96
    chars_per_token: float = CHARS_PER_TOKEN


@dataclass(frozen=True, slots=True)
class LatencySlot:
    """The position of a latency sample in the schedule. It is encoded in the sample's key."""

    case: str
    bucket: int
    block: int
    round: int

    @property
    def label(self) -> str:
        """The key's `case`."""
        return f"{self.case}@{self.bucket}:{STEADY}"

    @property
    def repeat(self) -> int:
        """The key's `repeat`."""
        return 2 * self.block + self.round


def slot_of(case: str, repeat: int) -> LatencySlot:
    """The slot that is encoded in a key's `case` and `repeat`. Raises RunError for other samples."""
    name, _, rest = case.rpartition("@")
    bucket, _, regime = rest.partition(":")
    if not name or not bucket.isdecimal() or regime != STEADY:
        raise RunError(f"{case!r} is no sample of the latency gate")
    return LatencySlot(name, int(bucket), repeat // 2, repeat % 2)


def latency_requests(
    suite: str, arms: Sequence[Arm], prompts: Sequence[Case], sampling: Sampling, schedule: Schedule
) -> tuple[PlannedRequest, ...]:
    """All requests in order, after a warm-up of the arms in every shape. Raises RunError: nothing to ask."""
    if not arms or not prompts or not schedule.buckets or schedule.blocks < 1:
        raise RunError("a latency schedule needs arms, prompts, buckets and blocks")
    short = replace(sampling, max_tokens=schedule.max_tokens)

    def ask(arm: Arm, case: Case, bucket: int, block: int, turn: int) -> PlannedRequest:
        """A request behind the turn before it, which has a reply of one token."""
        slot = LatencySlot(case.id, bucket, block, turn)
        label = f"{STEADY} {arm.name} {slot.label} {slot.repeat}"
        start = _hash_number(case.id) % len(SMALL_TALK)
        talk = pad_conversation(case.messages, case.tools, bucket, schedule.chars_per_token, start)
        messages = with_nonce(talk, f"Note {_hash_number(label) % 10**8:08d}.")
        made = planned_request(
            suite, arm, replace(case, id=slot.label, messages=messages), short, slot.repeat
        )
        before = {**made.request, "messages": list(made.request["messages"][:-2]), "max_tokens": 1}
        low, high = schedule.pause_s
        wait = low + (high - low) * (_hash_number(f"pause {label}") % 1000) / 1000
        return replace(made, before=before, wait_s=wait)

    shapes = {(bucket, bool(c.tools)): c for bucket, c in product(schedule.buckets, prompts)}
    made = [
        replace(ask(arm, case, bucket, -1, 0), wait_s=0.0, recorded=False)
        for arm, ((bucket, _), case) in product(arms, shapes.items())
    ]
    for block in range(schedule.first_block, schedule.first_block + schedule.blocks):
        label = f"{STEADY} {block}"
        for case, bucket in _shuffled(list(product(prompts, schedule.buckets)), label):
            order = _shuffled(arms, f"{label} {case.id} {bucket}")
            turns = [*((arm, 0) for arm in order), *((arm, 1) for arm in reversed(order))]
            made += [ask(arm, case, bucket, block, turn) for arm, turn in turns]
    return tuple(made)


def _hash_number(label: str) -> int:
    """A 64-bit number from the hash of a label, uniformly distributed."""
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])


def _shuffled(items: Sequence[T], label: str) -> list[T]:
    """The items in a random order that depends on the label."""
    places = sorted(range(len(items)), key=lambda place: _hash_number(f"{label} {place}"))
    return [items[place] for place in places]


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
    thought: bool = False
    failed: str = ""
    void: str = ""


def latency_readings(samples: Iterable[Sample], *, cache_unsaid: bool = False) -> tuple[LatencyReading, ...]:
    """The readings of all latency samples but those of earlier programs' uncached prompts. `cache_unsaid`: one without a cache count is good."""
    timed = (sample for sample in samples if sample.key.arm.startswith(LATENCY_PREFIX))
    return tuple(_reading(sample, cache_unsaid) for sample in timed if not sample.key.case.endswith(":cold"))


def _reading(sample: Sample, cache_unsaid: bool) -> LatencyReading:
    reply, slot = read_reply(sample), slot_of(sample.key.case, sample.key.repeat)
    arm, clocks = sample.key.arm.removeprefix(LATENCY_PREFIX), reply.clocks
    if failed := _failure(sample, reply):
        return LatencyReading(arm, slot, failed=failed)
    ttft, sentence = (None if ns is None else ns / 1e6 for ns in (clocks.visible, clocks.sentence))
    decode, thought, void = _decode(sample, reply), clocks.reasoning is not None, ""
    if reply.cached_tokens is None or not reply.prompt_tokens:
        void = "" if cache_unsaid else CACHE_UNKNOWN
    elif (share := reply.cached_tokens / reply.prompt_tokens) < LEAST_CACHED:
        void = f"{share:.0%} of the prompt was cached"
    return LatencyReading(arm, slot, ttft, sentence, decode, thought, void=void)


def _failure(sample: Sample, reply: Reply) -> str:
    """Why a request counts as failed; a successful retry does not change that."""
    if fault := next(iter(sample.retries), sample.fault):
        return f"{fault.kind}: {fault.detail}"
    if reply.error is not None:
        return f"error: {reply.error.message}"
    return "" if reply.clocks.visible is not None else "nothing was said"


def _decode(sample: Sample, reply: Reply) -> float | None:
    """Tokens per second after the first. None for a tool call, whose tags are tokens that do not appear in the text."""
    first, last, tokens = reply.clocks.token, reply.clocks.last, reply.completion_tokens or 0
    if reply.calls or tokens < MIN_DECODE_TOKENS or first is None or last is None:
        return None
    if sum(first < read.at_ns <= last for read in sample.reads) < MIN_DECODE_READS:
        return None
    return (tokens - 1) / (last - first) * 1e9


def timings(readings: Iterable[LatencyReading], *, first_stage_blocks: int) -> Iterator[Timing]:
    """A value for each metric and request of the two arms, without void ones; later blocks are the extension's. "0.5k": a bucket of 500 tokens."""
    for reading in readings:
        if reading.arm not in (CANDIDATE, BASELINE) or reading.void:
            continue
        slot, arm = reading.slot, cast(ArmName, reading.arm)
        stage, bucket = 2 if slot.block >= first_stage_blocks else 1, f"{slot.bucket / 1000:g}k"
        for metric in METRICS:
            value = getattr(reading, metric)
            if value is not None or reading.failed:
                yield Timing(metric, arm, slot.case, value, bucket, slot.block, slot.round, stage)


def void_summary(readings: Iterable[LatencyReading], arm: str) -> str:
    """The number of void readings of an arm and their most frequent reason; "" if there are none."""
    whys = Counter(r.void for r in readings if r.arm == arm and r.void)
    return f"{whys.total()} did not count: {whys.most_common(1)[0][0]}" if whys else ""
