"""The warm-up and the canary: requests that a candidate answers before the gateway routes callers to it.

The warm-up requests every shape a few times: the first request of a shape may compile a kernel, capture a graph or grow a
cache. A shape is a prompt length, alone or concurrent; no prompt is in a cache.

The canary is a few questions with known answers: cases of the suite that judged the candidate (`deploy/canary.toml` lists
them), asked as the gate asks them and judged by the gate's own detectors.
"""

import asyncio
import itertools
import math
import random
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high
from typing import Any, Final

from app.config.config import Promotion
from app.promotion.state_machine import EffectError, FailureReason
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import RunError
from gates.contracts.sample import SampleKey
from gates.detect.catalogue import GATES
from gates.judge.score import failure_reason
from gates.reply.reply import Reply, read_heard
from gates.run.calibrate import calibrate
from gates.run.conversation import CHARS_PER_TOKEN, buckets_within, pad_conversation, with_nonce
from gates.run.http import ReplyLimits, RequestTimeouts, TimedClient
from gates.run.request import body_digest, build_body, encode_body
from gates.run.target import Target, Variant

QUESTIONS: Final = Path(__file__).parent.parent.parent / "deploy" / "canary.toml"

ALWAYS: Final = tuple(gate.name for gate in GATES.values() if gate.canary == "always")
"""The gates that every reply is judged by."""
EXPECTED: Final = tuple(gate.name for gate in GATES.values() if gate.canary == "expected")
"""The gates that a reply is judged by if its case has an expectation."""

TIMEOUTS: Final = RequestTimeouts(connect=5.0, idle=30.0, total=60.0)
REPLY: Final = ReplyLimits(size=1 << 20, lines=1 << 14)
"""Callers are served meanwhile: to parse more would delay them."""
JudgedAnswers = dict[str, list[tuple[str, str]]]
"""By gate: each case, and why its answer is bad, "" if it is good."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Cases, their sampling, and the least share of good replies by gate (1 if not named)."""

    cases: tuple[Case, ...]
    sampling: Sampling
    least: Mapping[str, float]


def canary_for(suite: Suite) -> Canary:
    """The canary of a suite: the cases that are listed for it, or else its named cases.

    Raises EffectError: a listed case is not in the suite, or there is none to ask.
    """
    listed = tomllib.loads(QUESTIONS.read_text("utf-8"))
    known = {case.id: case for case in suite.cases}
    names = listed["cases"].get(suite.name, [case.id for case in suite.cases if case.named])
    missing = [name for name in names if name not in known]
    if missing or not names:
        why = f"has no case {missing[0]!r}" if missing else "has no case that is listed, and none is named"
        raise EffectError(FailureReason("gates_unreadable", f"{QUESTIONS.name}: suite {suite.name} {why}"))
    return Canary(tuple(known[name] for name in names), suite.sampling, listed["least"])


async def probe(target: Target, canary: Canary) -> dict[str, object]:
    """Ask every question, one at a time, and judge the answers as the target hears them; the numbers of good ones by gate.

    Raises EffectError: canary_failed, with the gates that it failed and the first bad answers.
    """
    found: JudgedAnswers = defaultdict(list)
    times: list[float] = []
    wire = TimedClient(TIMEOUTS, REPLY)
    for case in canary.cases:
        try:
            reply = await ask(wire, target, case, canary.sampling, Variant())
        except RunError as error:
            raise EffectError(FailureReason("canary_failed", str(error))) from None
        for gate, why in (await asyncio.to_thread(judged, case, reply)).items():
            found[gate].append((case.id, why))
        if reply.clocks.visible is not None:
            times.append(reply.clocks.visible / 1e9)
        if reply.fault is not None:
            break  # it is down or hangs: the next question would only wait for it again
    if fault := failure(found, canary.least):
        raise EffectError(fault)
    good = {gate: [sum(not why for _, why in of), len(of)] for gate, of in found.items()}
    first = round(median_high(times), 4) if times else None
    return {"asked": len(canary.cases), "good": good, "first_content_s": first}


def judged(case: Case, reply: Reply) -> dict[str, str]:
    """By every gate that applies why a reply is bad, "" if it is good. A reply that failed is bad for all of them."""
    gates = (*ALWAYS, *(gate for gate in case.gates if gate in EXPECTED))
    lost = f"{reply.fault.kind}: {reply.fault.detail}" if reply.fault else ""
    return {gate: lost or failure_reason(gate, case, reply) for gate in gates}


def failure(found: JudgedAnswers, least: Mapping[str, float]) -> FailureReason | None:
    """The gates that the answers fail, with the first bad answers of each; None: they pass."""
    failed = []
    for gate, of in found.items():
        bad = [f"{case}: {why:.120}" for case, why in of if why]
        if len(of) - len(bad) < math.ceil(least.get(gate, 1.0) * len(of)):
            failed.append(f"{gate}: {len(bad)} of {len(of)} bad ({'; '.join(bad[:3])})")
    return FailureReason("canary_failed", " | ".join(failed).replace("\n", " ")) if failed else None


async def ask(wire: TimedClient, target: Target, case: Case, sampling: Sampling, variant: Variant) -> Reply:
    """One request, made as the gates make it. Raises RunError: the engine's dialect does not know a sampling parameter."""
    body = build_body(case, sampling, target, variant, "stream")
    attempt = await wire.ask(target, encode_body(body))
    key = SampleKey("", target.artefact, target.engine, body_digest(body), "canary", case.id, 0, "stream")
    # In a thread: callers are served meanwhile, and a reply may be long.
    return await asyncio.to_thread(lambda: read_heard(attempt.sample(key, body, hearing=target.hearing)))


ROUNDS: Final = 3
"""How often the warm-up requests each shape."""
TOKENS: Final = 24
"""The longest reply to the warm-up."""
_CONTEXT: Final = 4096
"""The context in tokens, for an engine that does not state it."""
_TURN: Final[Mapping[str, Any]] = {"role": "user", "content": "Good morning, how are you?"}


def shapes(settings: Promotion, context: int) -> list[tuple[int, int]]:
    """Tokens of a prompt, and how many ask at once: every length that fits the context, alone; and the shortest, concurrently."""
    lengths = buckets_within(context, TOKENS, settings.warm_tokens) or (min(settings.warm_tokens),)
    return [*((length, 1) for length in lengths), *((min(lengths), n) for n in settings.warm_at_once)]


async def warm(
    target: Target, settings: Promotion, *, thinking: bool = False, context: int | None = None
) -> dict[str, object]:
    """Request every shape; the number of requests.

    `context` is the engine's, in tokens. Raises EffectError (warm_failed): a request was not answered, or `warm_seconds` are over.
    """
    seconds, numbers = settings.warm_seconds, itertools.count(random.getrandbits(24))
    wire = TimedClient(RequestTimeouts(connect=5.0, idle=seconds, total=seconds), REPLY)
    scale = CHARS_PER_TOKEN  # for an engine that does not count a prompt's tokens

    async def one(number: int, tokens: int) -> None:
        """Request a conversation about that long."""
        padded = pad_conversation((_TURN,), (), tokens=tokens, turn=number, chars_per_token=scale)
        case = Case("warm", (), with_nonce(padded, f"Note {number:08d}."), ())
        reply = await ask(wire, target, case, Sampling(max_tokens=TOKENS), Variant(thinking=thinking))
        if reply.clocks.token is None or not reply.complete:
            error = reply.error.message if reply.error else "no token came"
            why = reply.fault.detail if reply.fault else error
            raise EffectError(FailureReason("warm_failed", f"{tokens} tokens: {why:.200}"))

    try:
        async with asyncio.timeout(seconds):
            with suppress(RunError):
                scale = await calibrate(target, limits=REPLY)
            for tokens, together in (asked := shapes(settings, context or _CONTEXT) * ROUNDS):
                async with asyncio.TaskGroup() as group:
                    for _ in range(together):
                        group.create_task(one(next(numbers), tokens))
    except TimeoutError:
        raise EffectError(FailureReason("warm_failed", f"not warm after {seconds:g} s")) from None
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # it cancelled the others
    return {"requests": sum(together for _, together in asked)}
