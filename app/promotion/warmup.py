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
from functools import partial
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
class WarmupPlan:
    """How callers ask, and when the warm-up ends.

    `buckets` are prompt lengths in tokens (those that fit the context), `concurrency` how many ask at once. Medians agree
    that differ by at most `floor_s` seconds, or `tolerance` of them. A round requests each shape `each` times, or for
    `round_s` seconds. `slowest_s` bounds every request after the first round, in which an engine may compile; `seconds`
    bounds the whole warm-up.
    """

    buckets: tuple[int, ...] = (50, 500, 2000, 4000)
    concurrency: tuple[int, ...] = (2, 4)
    thinking: bool = False
    max_tokens: int = 24
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


def shapes(plan: WarmupPlan, context: int) -> tuple[RequestShape, ...]:
    """The shapes of a round: every length alone, and the shortest concurrently."""
    lengths = buckets_within(context, plan.max_tokens, plan.buckets) or (min(plan.buckets),)
    together = (RequestShape(min(lengths), n) for n in plan.concurrency if n > 1)
    return (*map(RequestShape, lengths), *together)


def settled(medians: Sequence[float], plan: WarmupPlan) -> bool:
    """Whether more rounds would change nothing. Medians in seconds, in the order of the rounds.

    An engine that is still warming up gets faster; noise goes both ways.
    """
    if len(medians) < LAST:
        return False
    before, last = medians[:-LAST], medians[-LAST:]
    if max(last) - min(last) <= max(plan.tolerance * statistics.median(last), plan.floor_s):
        return True
    return len(before) >= LAST and min(last) >= (1.0 - plan.tolerance) * min(before)


async def warm(target: Target, plan: WarmupPlan, context: int | None = None) -> dict[str, object]:
    """Send requests until every shape is settled; the first and the last median of each, in seconds.

    A median is of times to first token. `context` is the engine's, in tokens.

    Raises:
        EffectError: warm_failed (a request was not answered), warm_slow (one took longer than
            `slowest_s`), warm_unsettled (`rounds` or `seconds` were not enough).
    """
    began = time.monotonic()
    timeouts = RequestTimeouts(connect=5.0, idle=plan.seconds, total=plan.seconds)
    try:
        async with asyncio.timeout(plan.seconds):
            work = _Warmup(TimedClient(timeouts, REPLY), target, plan, await _chars_per_token(target))
            medians = await work.all(shapes(plan, context or _CONTEXT))
    except TimeoutError:
        why = f"its times had not settled after {plan.seconds:g} s"
        raise EffectError(FailureReason("warm_unsettled", why)) from None
    except RunError as error:
        raise EffectError(FailureReason("warm_failed", str(error))) from None
    shown = {
        shape.name: {"rounds": len(of), "first_s": round(of[0], 4), "settled_s": round(of[-1], 4)}
        for shape, of in medians.items()
    }
    return {"requests": work.asked, "seconds": round(time.monotonic() - began, 3), "shapes": shown}


async def _chars_per_token(target: Target) -> float:
    """Characters per token of this engine; the usual figure if it does not count a prompt's tokens."""
    try:
        return await calibrate(target, limits=REPLY)
    except RunError:
        return CHARS_PER_TOKEN


class _Warmup:
    """The warm-up of one engine."""

    def __init__(self, wire: TimedClient, target: Target, plan: WarmupPlan, scale: float) -> None:
        self._plan = plan
        self._pad = partial(pad_conversation, (_TURN,), (), chars_per_token=scale)
        variant, sampling = Variant(thinking=plan.thinking), Sampling(max_tokens=plan.max_tokens)
        self._ask = partial(ask, wire, target, sampling=sampling, variant=variant)
        self._numbers: Iterator[int] = itertools.count(random.getrandbits(24))
        self.asked = 0

    async def all(self, wanted: Sequence[RequestShape]) -> dict[RequestShape, list[float]]:
        """The medians of every shape, round by round, until all are settled."""
        medians: dict[RequestShape, list[float]] = {shape: [] for shape in wanted}
        for number in range(self._plan.rounds + 1):
            open_shapes = [shape for shape, times in medians.items() if not settled(times, self._plan)]
            if not open_shapes:
                return medians
            if number < self._plan.rounds:
                for shape in open_shapes:
                    medians[shape].append(statistics.median(await self._round(shape, number)))
        unsettled = "; ".join(
            f"{shape.name}: {', '.join(f'{time:.3f}' for time in medians[shape][-LAST:])} s"
            for shape in open_shapes
        )
        why = f"not settled after {self._plan.rounds} rounds: {unsettled}"
        raise EffectError(FailureReason("warm_unsettled", why))

    async def _round(self, shape: RequestShape, number: int) -> list[float]:
        """At least one time, in seconds."""
        times: list[float] = []
        end = time.monotonic() + self._plan.round_s
        while not times or (len(times) < self._plan.each and time.monotonic() < end):
            times += await self._together(shape)
        if number and max(times) > self._plan.slowest_s:
            slow = f"{shape.name}: {max(times):.1f} s; at most {self._plan.slowest_s:g} are allowed"
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
        """One request of a conversation of about that length that is in no cache: its time to first token."""
        self.asked += 1
        number = next(self._numbers)
        talk = with_nonce(self._pad(tokens=shape.tokens, turn=number), f"Note {number:08d}.")
        reply = await self._ask(case=Case("warm", (), talk, ()))
        if reply.clocks.token is None or not reply.complete:
            raise RunError(f"{shape.name}: {_why(reply)}")
        return reply.clocks.token / 1e9


def _why(reply: Reply) -> str:
    if reply.fault is not None:
        return f"{reply.fault.kind}: {reply.fault.detail}"
    if reply.error is not None:
        return f"HTTP {reply.status}: {reply.error.message:.200}"
    return f"no token came (finish_reason {reply.finish_reason})"
