"""The schedule of the latency gate: who is asked what, after how long a silence, in which order. Pure.

* Arms take turns, never run at once: two models on one GPU contend. Within a block each prompt goes
  round the arms forth and back (A B B A), in an order drawn anew, so that a drift of the host meets
  all arms alike. Where the arms cannot be up together, a block holds one phase for each arm, in an
  order that turns round from block to block, and the engine is started anew before every phase.
* Every prompt is new to the engine: a nonce of constant length stands in its first user turn
  (vLLM #54227: with fixed prompts the prefix cache gave TTFT 49 times lower).
* A voice pauses: there are seconds of silence before each request (vLLM #31602: TTFT after a pause
  is not TTFT in a loop).
* Two regimes. *cold*: nothing of the prompt is cached. *steady*: the conversation up to its last
  turn is, because the turn before was just asked, as with a caller who goes on talking.

The draws are SHA-256 of the seed and a label, so that a schedule is the same on every machine and a
run can be resumed. What was measured, `gates.run.readings` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal, TypeVar

from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.run.context import CHARS_PER_TOKEN, SMALL_TALK, grown, marked
from gates.run.plan import Ask, ask
from gates.run.target import Arm

T = TypeVar("T")
Regime = Literal["cold", "steady"]

BUCKETS: Final = (500, 2000, 4000, 8000)
"""Prompt lengths in tokens. TTFT over length is flat and then linear (vLLM #7635)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What the latency gate measures.

    `buckets` are prompt lengths in tokens, `blocks` stretches of time in which all arms run by
    turns (`first_block` continues the count in an extension), `pause_s` the shortest and longest
    silence before a request, in seconds. Each block asks each prompt in each bucket twice of each
    arm, if `together`, and once if the arms cannot be up at one time.
    """

    buckets: tuple[int, ...] = BUCKETS
    regime: Regime = "steady"
    blocks: int = 8
    first_block: int = 0
    pause_s: tuple[float, float] = (5.0, 10.0)
    max_tokens: int = 96
    seed: int = 0
    chars_per_token: float = CHARS_PER_TOKEN
    together: bool = True

    @property
    def rounds(self) -> int:
        """How often a block asks one prompt in one bucket of one arm."""
        return 2 if self.together else 1


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a latency sample belongs; it is written into the sample's key and read from there."""

    case: str
    bucket: int
    regime: str
    block: int
    round: int

    @property
    def label(self) -> str:
        """The key's `case`."""
        return f"{self.case}@{self.bucket}:{self.regime}"

    @property
    def repeat(self) -> int:
        """The key's `repeat`."""
        return 2 * self.block + self.round


def slot_of(case: str, repeat: int) -> Slot:
    """The slot that a key's `case` and `repeat` name. Raises RunError for another kind of sample."""
    name, _, rest = case.rpartition("@")
    bucket, _, regime = rest.partition(":")
    if not name or not bucket.isdecimal() or not regime:
        raise RunError(f"{case!r} is no sample of the latency gate")
    return Slot(name, int(bucket), regime, repeat // 2, repeat % 2)


def prompts_needed(n: int, schedule: Schedule) -> int:
    """How many prompts give at least n requests of each bucket and arm."""
    return -(-n // (schedule.blocks * schedule.rounds))


def phases(
    suite: str, arms: Sequence[Arm], prompts: Sequence[Case], sampling: Sampling, schedule: Schedule
) -> tuple[tuple[Ask, ...], ...]:
    """The asks, in order, in phases; `suite` is the suite's digest.

    Engines that are up together have one phase. Otherwise each phase is of one arm: its engine is to
    be started for it, and the others stopped. A phase begins with the warm-up of its arms, one
    request of each shape (bucket, tools or none), for kernels are compiled on the first one.

    Raises:
        RunError: nothing to ask, or not enough blocks to alternate.
    """
    if not arms or not prompts or not schedule.buckets or schedule.blocks < 1:
        raise RunError("a latency schedule needs arms, prompts, buckets and blocks")
    make = _Maker(suite, prompts, replace(sampling, max_tokens=schedule.max_tokens), schedule)
    if schedule.together:
        return ((*make.warm_up(arms), *make.palindromes(arms)),)
    if schedule.blocks < 4:
        raise RunError("arms that are never up together need 4 alternating blocks at least")
    return tuple((*make.warm_up([arm]), *make.straight(arm, block)) for block, arm in _turns(arms, schedule))


def _turns(arms: Sequence[Arm], schedule: Schedule) -> Iterator[tuple[int, Arm]]:
    """A B, B A, A B, ... over the blocks; which begins is drawn."""
    order = _shuffled(arms, f"{schedule.seed} arms")
    for block in _blocks(schedule):
        for arm in order if block % 2 == 0 else reversed(order):
            yield block, arm


def _blocks(schedule: Schedule) -> range:
    return range(schedule.first_block, schedule.first_block + schedule.blocks)


@dataclass(frozen=True)
class _Maker:
    """Makes asks."""

    suite: str
    prompts: Sequence[Case]
    sampling: Sampling
    schedule: Schedule

    def palindromes(self, arms: Sequence[Arm]) -> Iterator[Ask]:
        """Each prompt and bucket forth and back through all arms."""
        for block in _blocks(self.schedule):
            for case, bucket in self._order(block):
                order = _shuffled(arms, f"{self._seed} {block} {case.id} {bucket}")
                for turn, arm in ((0, arm) for arm in order):
                    yield self._ask(arm, case, bucket, block, turn)
                for turn, arm in ((1, arm) for arm in reversed(order)):
                    yield self._ask(arm, case, bucket, block, turn)

    def straight(self, arm: Arm, block: int) -> Iterator[Ask]:
        """Each prompt and bucket once."""
        for case, bucket in self._order(block):
            yield self._ask(arm, case, bucket, block, 0)

    def warm_up(self, arms: Sequence[Arm]) -> Iterator[Ask]:
        """One unrecorded request of every shape, without a pause."""
        shapes = {(bucket, bool(c.tools)): c for bucket, c in product(self.schedule.buckets, self.prompts)}
        for arm, ((bucket, _), case) in product(arms, shapes.items()):
            made = self._ask(arm, case, bucket, block=-1, turn=0)
            yield replace(made, wait_s=0.0, recorded=False)

    @property
    def _seed(self) -> str:
        return f"{self.schedule.seed} {self.schedule.regime}"

    def _order(self, block: int) -> list[tuple[Case, int]]:
        every = list(product(self.prompts, self.schedule.buckets))
        return _shuffled(every, f"{self._seed} {block}")

    def _ask(self, arm: Arm, case: Case, bucket: int, block: int, turn: int) -> Ask:
        slot = Slot(case.id, bucket, self.schedule.regime, block, turn)
        label = f"{self._seed} {arm.name} {slot.label} {slot.repeat}"
        nonce = f"{_number(label) % 10**8:08d}"
        talk = grown(
            case.messages,
            case.tools,
            bucket,
            self.schedule.chars_per_token,
            _number(case.id) % len(SMALL_TALK),
        )
        asked = replace(case, id=slot.label, messages=marked(talk, f"Note {nonce}."))
        variant = replace(arm.variant, extra={**arm.variant.extra, **self._cache(arm, nonce)})
        made = ask(self.suite, replace(arm, variant=variant), asked, self.sampling, slot.repeat)
        low, high = self.schedule.pause_s
        wait = low + (high - low) * (_number(f"pause {label}") % 1000) / 1000
        return replace(made, before=self._before(made), wait_s=wait)

    def _before(self, made: Ask) -> dict[str, Any] | None:
        """In the steady regime: the turn before this one, answered with a single token."""
        if self.schedule.regime == "cold":
            return None
        return {**made.request, "messages": list(made.request["messages"][:-2]), "max_tokens": 1}

    def _cache(self, arm: Arm, nonce: str) -> dict[str, Any]:
        """The fields that keep an engine from using what it holds, in the cold regime."""
        if self.schedule.regime == "steady" or arm.target.dialect == "openai":
            return {}
        return {"cache_salt": nonce} if arm.target.dialect == "vllm" else {"cache_prompt": False}


def _number(label: str) -> int:
    """A number drawn for a label: uniform over 64 bits."""
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])


def _shuffled(items: Sequence[T], label: str) -> list[T]:
    """The items in an order drawn for a label."""
    places = sorted(range(len(items)), key=lambda place: _number(f"{label} {place}"))
    return [items[place] for place in places]
