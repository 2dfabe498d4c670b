"""Warm-up: a candidate answers every shape of request a few times before callers send it any.

The first request of a shape may compile a kernel, capture a graph or grow a cache. A shape is a prompt length, alone or
concurrent; no prompt is in a cache.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Mapping
from typing import Any, Final

from app.config.config import Promotion
from app.promotion.canary import REPLY, ask
from app.promotion.state_machine import EffectError, FailureReason
from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.run.calibrate import calibrate
from gates.run.conversation import CHARS_PER_TOKEN, buckets_within, pad_conversation, with_nonce
from gates.run.http import RequestTimeouts, TimedClient
from gates.run.target import Target, Variant

ROUNDS: Final = 3
"""How often each shape is requested."""
TOKENS: Final = 24
"""The longest reply."""
_CONTEXT: Final = 4096
"""The context in tokens, for an engine that does not state it."""
_TURN: Final[Mapping[str, Any]] = {"role": "user", "content": "Good morning, how are you?"}

RequestShape = tuple[int, int]
"""The tokens of a prompt, and how many ask at once."""


def shapes(settings: Promotion, context: int) -> list[RequestShape]:
    """Every length that fits the context, alone; and the shortest, concurrently."""
    lengths = buckets_within(context, TOKENS, settings.warm_tokens) or (min(settings.warm_tokens),)
    return [*((length, 1) for length in lengths), *((min(lengths), n) for n in settings.warm_at_once)]


async def warm(
    target: Target, settings: Promotion, *, thinking: bool = False, context: int | None = None
) -> dict[str, object]:
    """Request every shape; by shape the first and the last time to first token in seconds.

    `context` is the engine's, in tokens. Raises EffectError (warm_failed): a request was not answered, or `warm_seconds` are over.
    """
    seconds, began, asked = settings.warm_seconds, time.monotonic(), 0
    wire = TimedClient(RequestTimeouts(connect=5.0, idle=seconds, total=seconds), REPLY)
    sampling, variant = Sampling(max_tokens=TOKENS), Variant(thinking=thinking)
    times: dict[str, dict[str, float]] = {}

    async def one(number: int, tokens: int) -> float:
        """The time to first token of a conversation about that long."""
        padded = pad_conversation((_TURN,), (), tokens=tokens, turn=number, chars_per_token=scale)
        case = Case("warm", (), with_nonce(padded, f"Note {number:08d}."), ())
        reply = await ask(wire, target, case, sampling, variant)
        if reply.clocks.token is None or not reply.complete:
            why = (
                reply.fault.detail if reply.fault else reply.error.message if reply.error else "no token came"
            )
            raise RunError(f"{tokens} tokens: {why:.200}")
        return reply.clocks.token / 1e9

    try:
        async with asyncio.timeout(seconds):
            scale, numbers = await _chars_per_token(target), itertools.count(random.getrandbits(24))
            for tokens, together in shapes(settings, context or _CONTEXT):
                rounds = []
                for _ in range(ROUNDS):
                    async with asyncio.TaskGroup() as group:
                        tasks = [group.create_task(one(next(numbers), tokens)) for _ in range(together)]
                    rounds.append(max(task.result() for task in tasks))
                    asked += together
                name = f"{tokens} tokens" + (f", {together} at once" if together > 1 else "")
                times[name] = {"first_s": round(rounds[0], 4), "last_s": round(rounds[-1], 4)}
    except TimeoutError:
        raise EffectError(FailureReason("warm_failed", f"not warm after {seconds:g} s")) from None
    except ExceptionGroup as failed:
        if not isinstance(error := failed.exceptions[0], RunError):  # it cancelled the others
            raise error from None
        raise EffectError(FailureReason("warm_failed", str(error))) from None
    return {"requests": asked, "seconds": round(time.monotonic() - began, 3), "shapes": times}


async def _chars_per_token(target: Target) -> float:
    """Characters per token of this engine; the usual figure if it does not count a prompt's tokens."""
    try:
        return await calibrate(target, limits=REPLY)
    except RunError:
        return CHARS_PER_TOKEN
