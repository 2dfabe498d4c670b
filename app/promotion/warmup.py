"""Warm-up: a candidate gets requests of every shape that callers will send, until its times have settled.

The first request of a shape may compile a kernel, capture a graph or grow a cache. A shape is a prompt length, alone
or concurrent. Each shape is requested in rounds, with prompts that are in no cache; it is settled when the medians of
its last rounds agree or, on a busy host, when as many further rounds have brought no improvement.
"""

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.promotion.canary import REPLY, ask
from app.promotion.state_machine import EffectError, FailureReason
from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.reply.reply import Reply
from gates.run.calibrate import calibrate
from gates.run.conversation import CHARS_PER_TOKEN, buckets_within, pad_conversation, with_nonce
from gates.run.http import RequestTimeouts, TimedClient
from gates.run.target import Target, Variant

LAST: Final = 3
"""How many medians in a row must agree."""

_CONTEXT: Final = 4096
"""The context in tokens, for an engine that does not state it."""

_TURN: Final[Mapping[str, Any]] = {"role": "user", "content": "Good morning, how are you?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How callers ask: prompt lengths in tokens (those that fit the context), concurrency, thinking or not."""

    buckets: tuple[int, ...] = (50, 500, 2000, 4000)
    concurrency: tuple[int, ...] = (2, 4)
    thinking: bool = False
    max_tokens: int = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupLimits:
    """When the warm-up ends. Medians agree that differ by at most `floor_s` seconds, or `tolerance` of them.

    A round requests each shape `each` times, or for `round_s` seconds. `slowest_s` bounds every request
    after the first round, in which an engine may compile; `seconds` bounds the whole warm-up.
    """

    tolerance: float = 0.2
    floor_s: float = 0.05
    each: int = 3
    round_s: float = 2.0
    rounds: int = 12
    slowest_s: float = 30.0
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class RequestShape:
    """One kind of request: a prompt of about `tokens`, `together` of them at once."""

    tokens: int
    together: int = 1

    @property
    def name(self) -> str:
        return f"{self.tokens} tokens" + (f", {self.together} at once" if self.together > 1 else "")


def shapes(workload: Workload, context: int) -> tuple[RequestShape, ...]:
    """The shapes of a round: every length alone, and the shortest concurrently."""
    lengths = buckets_within(context, workload.max_tokens, workload.buckets) or (min(workload.buckets),)
    together = (RequestShape(min(lengths), n) for n in workload.concurrency if n > 1)
    return (*map(RequestShape, lengths), *together)


def settled(medians: Sequence[float], limits: WarmupLimits) -> bool:
    """Whether more rounds would change nothing. Medians in seconds, in the order of the rounds.

    An engine that is still warming up gets faster; noise goes both ways.
    """
    if len(medians) < LAST:
        return False
    before, last = medians[:-LAST], medians[-LAST:]
    if max(last) - min(last) <= max(limits.tolerance * statistics.median(last), limits.floor_s):
        return True
    return len(before) >= LAST and min(last) >= (1.0 - limits.tolerance) * min(before)


async def warm(
    target: Target,
    *,
    workload: Workload,
    limits: WarmupLimits,
    context: int | None = None,
) -> dict[str, object]:
    """Send requests until every shape is settled; the first and the last median of each, in seconds.

    A median is of times to first token. `context` is the engine's, in tokens.

    Raises:
        EffectError: warm_failed (a request was not answered), warm_slow (one took longer than
            `slowest_s`), warm_unsettled (`rounds` or `seconds` were not enough).
    """
    began = time.monotonic()
    try:
        timeouts = RequestTimeouts(connect=5.0, idle=limits.seconds, total=limits.seconds)
        async with asyncio.timeout(limits.seconds):
            work = _Warmup(
                TimedClient(timeouts, REPLY), target, workload, limits, await _chars_per_token(target)
            )
            medians = await work.all(shapes(workload, context or _CONTEXT))
    except TimeoutError:
        why = f"its times had not settled after {limits.seconds:g} s"
        raise EffectError(FailureReason("warm_unsettled", why)) from None
    except RunError as error:
        raise EffectError(FailureReason("warm_failed", str(error))) from None
    return {
        "requests": work.asked,
        "seconds": round(time.monotonic() - began, 3),
        "shapes": {
            shape.name: {
                "rounds": len(times),
                "first_s": round(times[0], 4),
                "settled_s": round(times[-1], 4),
            }
            for shape, times in medians.items()
        },
    }


async def _chars_per_token(target: Target) -> float:
    """Characters per token of this engine; the usual figure if it does not count a prompt's tokens."""
    try:
        return await calibrate(target, limits=REPLY)
    except RunError:
        return CHARS_PER_TOKEN


class _Warmup:
    """The warm-up of one engine."""

    def __init__(
        self, wire: TimedClient, target: Target, workload: Workload, limits: WarmupLimits, scale: float
    ) -> None:
        self._wire, self._target, self._limits, self._scale = wire, target, limits, scale
        self._variant = Variant(thinking=workload.thinking)
        self._sampling = Sampling(max_tokens=workload.max_tokens)
        self._numbers: Iterator[int] = itertools.count(random.getrandbits(24))
        self.asked = 0

    async def all(self, wanted: Sequence[RequestShape]) -> dict[RequestShape, list[float]]:
        """The medians of every shape, round by round, until all are settled."""
        medians: dict[RequestShape, list[float]] = {shape: [] for shape in wanted}
        for number in range(self._limits.rounds):
            for shape in (shape for shape in wanted if not settled(medians[shape], self._limits)):
                medians[shape].append(statistics.median(await self._round(shape, number)))
            if all(settled(times, self._limits) for times in medians.values()):
                return medians
        unsettled = "; ".join(
            f"{shape.name}: {', '.join(f'{time:.3f}' for time in times[-LAST:])} s"
            for shape, times in medians.items()
            if not settled(times, self._limits)
        )
        why = f"not settled after {self._limits.rounds} rounds: {unsettled}"
        raise EffectError(FailureReason("warm_unsettled", why))

    async def _round(self, shape: RequestShape, number: int) -> list[float]:
        """At least one time, in seconds."""
        times: list[float] = []
        end = time.monotonic() + self._limits.round_s
        while not times or (len(times) < self._limits.each and time.monotonic() < end):
            times += await self._together(shape)
        if number and max(times) > self._limits.slowest_s:
            slow = f"{shape.name}: {max(times):.1f} s; at most {self._limits.slowest_s:g} are allowed"
            raise EffectError(FailureReason("warm_slow", slow))
        return times

    async def _together(self, shape: RequestShape) -> list[float]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._time(shape)) for _ in range(shape.together)]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one; it cancelled the others
        return [task.result() for task in tasks]

    async def _time(self, shape: RequestShape) -> float:
        self.asked += 1
        case = self._case(shape)
        reply = await ask(self._wire, self._target, case, self._sampling, self._variant)
        first = reply.clocks.token
        if first is None or not reply.complete:
            raise RunError(f"{shape.name}: {_why(reply)}")
        return first / 1e9

    def _case(self, shape: RequestShape) -> Case:
        """A conversation of about that length that is in no cache."""
        number = next(self._numbers)
        talk = pad_conversation((_TURN,), (), shape.tokens, self._scale, number)
        return Case("warm", (), with_nonce(talk, f"Note {number:08d}."), ())


def _why(reply: Reply) -> str:
    if reply.fault is not None:
        return f"{reply.fault.kind}: {reply.fault.detail}"
    if reply.error is not None:
        return f"HTTP {reply.status}: {reply.error.message:.200}"
    return f"no token came (finish_reason {reply.finish_reason})"
