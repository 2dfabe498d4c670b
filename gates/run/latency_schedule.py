"""The schedule of latency measurements: the requests, their order, and the silence before each. Pure.

Arms alternate and never run at the same time: each prompt goes A B B A, in a new random order per block, so that drift affects all
arms alike. A nonce makes every prompt new to the engine (vLLM #54227), after seconds of silence (vLLM #31602). All but its last turn is cached, as with a caller who
talks on. Random choices are hashes of a label, so that a run can be resumed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, TypeVar

from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.policy.policy import BUCKETS
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


def prompts_needed(n: int, schedule: Schedule) -> int:
    """The number of prompts that gives at least n requests per bucket and arm."""
    return -(-n // (2 * schedule.blocks))


def latency_requests(
    suite: str, arms: Sequence[Arm], prompts: Sequence[Case], sampling: Sampling, schedule: Schedule
) -> tuple[PlannedRequest, ...]:
    """All requests in order, after a warm-up of the arms in every shape. Raises RunError: nothing to ask."""
    if not arms or not prompts or not schedule.buckets or schedule.blocks < 1:
        raise RunError("a latency schedule needs arms, prompts, buckets and blocks")
    short = replace(sampling, max_tokens=schedule.max_tokens)

    def ask(arm: Arm, case: Case, bucket: int, block: int, turn: int) -> PlannedRequest:
        slot = LatencySlot(case.id, bucket, block, turn)
        return _planned(suite, arm, case, slot, short, schedule)

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


def _planned(
    suite: str, arm: Arm, case: Case, slot: LatencySlot, sampling: Sampling, schedule: Schedule
) -> PlannedRequest:
    """One request behind the turn before it, with a reply of one token."""
    label = f"{STEADY} {arm.name} {slot.label} {slot.repeat}"
    nonce = f"{_hash_number(label) % 10**8:08d}"
    start = _hash_number(case.id) % len(SMALL_TALK)
    talk = pad_conversation(case.messages, case.tools, slot.bucket, schedule.chars_per_token, start)
    asked = replace(case, id=slot.label, messages=with_nonce(talk, f"Note {nonce}."))
    made = planned_request(suite, arm, asked, sampling, slot.repeat)
    before = {**made.request, "messages": list(made.request["messages"][:-2]), "max_tokens": 1}
    low, high = schedule.pause_s
    wait = low + (high - low) * (_hash_number(f"pause {label}") % 1000) / 1000
    return replace(made, before=before, wait_s=wait)


def _hash_number(label: str) -> int:
    """A 64-bit number from the hash of a label, uniformly distributed."""
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])


def _shuffled(items: Sequence[T], label: str) -> list[T]:
    """The items in a random order that depends on the label."""
    places = sorted(range(len(items)), key=lambda place: _hash_number(f"{label} {place}"))
    return [items[place] for place in places]
