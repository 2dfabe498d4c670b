"""The canary: a few questions with known answers, asked just before callers are routed to a candidate.

The questions are cases of the suite that judged it (`deploy/canary.toml` lists them), asked as the gate asks them and
judged by the gate's own detectors.
"""

import asyncio
import math
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high
from typing import Final

from app.promotion.state_machine import EffectError, FailureReason
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import RunError, SuiteError
from gates.contracts.sample import SampleKey
from gates.detect.catalogue import GATES
from gates.judge.score import failure_reason
from gates.reply.reply import Reply, read_heard
from gates.run.bounded_stream import ReplyLimits
from gates.run.http import RequestTimeouts, TimedClient
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
_SHOWN: Final = 3
_PLAIN: Final = Variant()


@dataclass(frozen=True, slots=True)
class Canary:
    """Cases, their sampling, and the least share of good replies by gate (1 if not named)."""

    cases: tuple[Case, ...]
    sampling: Sampling
    least: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CanaryAnswer:
    """A judged reply: by gate why it was bad ("" if good), and its time to first content in seconds."""

    case: str
    gates: Mapping[str, str]
    first_s: float | None


def canary_for(suite: Suite) -> Canary:
    """The canary of a suite: the cases that are listed for it, or else its named cases.

    Raises SuiteError: a listed case is not in the suite, or there is none to ask.
    """
    listed = tomllib.loads(QUESTIONS.read_text("utf-8"))
    known = {case.id: case for case in suite.cases}
    names = listed["cases"].get(suite.name)
    if names is None:
        names = [case.id for case in suite.cases if case.named]
    if missing := [name for name in names if name not in known]:
        raise SuiteError(f"{QUESTIONS.name}: suite {suite.name} has no case {missing[0]!r}")
    if not names:
        raise SuiteError(f"{QUESTIONS.name}: no case of suite {suite.name} is listed, and none is named")
    return Canary(tuple(known[name] for name in names), suite.sampling, listed["least"])


async def probe(target: Target, canary: Canary) -> dict[str, object]:
    """Ask every question, one at a time, and judge the answers as the target hears them; the numbers of good ones by gate.

    Raises EffectError: canary_failed, with the gates that it failed and the first bad answers.
    """
    answers = []
    try:
        wire = TimedClient(TIMEOUTS, REPLY)
        for case in canary.cases:
            reply = await ask(wire, target, case, canary.sampling)
            answers.append(await asyncio.to_thread(judged, case, reply))
            if reply.fault is not None:
                break  # it is down or hangs: the next question would only wait for it again
    except RunError as error:
        raise EffectError(FailureReason("canary_failed", str(error))) from None
    if fault := failure(answers, canary.least):
        raise EffectError(fault)
    return evidence(answers)


def judged(case: Case, reply: Reply) -> CanaryAnswer:
    """One reply, judged by every gate that applies. A reply that failed is bad for all of them."""
    gates = (*ALWAYS, *(gate for gate in case.gates if gate in EXPECTED))
    visible = reply.clocks.visible
    lost = f"{reply.fault.kind}: {reply.fault.detail}" if reply.fault else ""
    bad = {gate: lost or failure_reason(gate, case, reply) for gate in gates}
    return CanaryAnswer(case.id, bad, None if visible is None else visible / 1e9)


def failure(answers: Iterable[CanaryAnswer], least: Mapping[str, float]) -> FailureReason | None:
    """The gates that the answers fail, with the first bad answers of each; None: they pass."""
    failed = []
    for gate, found in _by_gate(answers).items():
        bad = [f"{case}: {why:.120}" for case, why in found if why]
        if len(found) - len(bad) < math.ceil(least.get(gate, 1.0) * len(found)):
            failed.append(f"{gate}: {len(bad)} of {len(found)} bad ({'; '.join(bad[:_SHOWN])})")
    return FailureReason("canary_failed", " | ".join(failed).replace("\n", " ")) if failed else None


def evidence(answers: Sequence[CanaryAnswer]) -> dict[str, object]:
    """[good, all] by gate, and the median time to first content in seconds."""
    times = [answer.first_s for answer in answers if answer.first_s is not None]
    return {
        "asked": len(answers),
        "good": {gate: [sum(not w for _, w in of), len(of)] for gate, of in _by_gate(answers).items()},
        "first_content_s": round(median_high(times), 4) if times else None,
    }


def _by_gate(answers: Iterable[CanaryAnswer]) -> Mapping[str, list[tuple[str, str]]]:
    found = defaultdict(list)
    for answer in answers:
        for gate, why in answer.gates.items():
            found[gate].append((answer.case, why))
    return found


# ------------------------------------------------------------- one request, also for the warm-up


async def ask(
    wire: TimedClient, target: Target, case: Case, sampling: Sampling, variant: Variant = _PLAIN
) -> Reply:
    """One request, made as the gates make it. Raises RunError: the engine's dialect does not know a sampling parameter."""
    body = build_body(case, sampling, target, variant, "stream")
    attempt = await wire.ask(target, encode_body(body))
    key = SampleKey("", target.artefact, target.engine, body_digest(body), "canary", case.id, 0, "stream")
    # In a thread: callers are served meanwhile, and a reply may be long.
    return await asyncio.to_thread(lambda: read_heard(attempt.sample(key, body, hearing=target.hearing)))
