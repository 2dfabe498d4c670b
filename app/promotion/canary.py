"""The canary: a few questions with known answers, just before callers are sent to a candidate.

The questions are cases of the suite that judged it (`deploy/canary.toml` says which), asked as the
gate asks them and judged by the gate's own detectors. What is looked for is an engine that is not
what it was: gibberish, another template, a thought that is said, a call that is spoken.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.promotion.asking import ask, target_of
from app.promotion.outcome import EffectFailed
from app.promotion.phases import Fault
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import RunError, SuiteError
from gates.judge.score import examine
from gates.reply.reply import Reply
from gates.run.http import Timeouts, Wire
from gates.run.target import Dialect

QUESTIONS: Final = Path(__file__).parent.parent.parent / "deploy" / "canary.toml"

ALWAYS: Final = ("leak", "raw_call", "empty", "loop", "no_markdown")
"""What every reply is looked at for."""
EXPECTED: Final = ("factual", "reasoning", "tools")
"""What a reply is looked at for where its case expects something."""

TIMEOUTS: Final = Timeouts(connect=5.0, idle=30.0, total=60.0)
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Canary:
    """Cases, how they are sampled, and the share of good replies that a gate needs (1 if not named)."""

    cases: tuple[Case, ...]
    sampling: Sampling
    least: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reply was: why it was bad, by gate ("" where it was good), and its time to first content in s."""

    case: str
    gates: Mapping[str, str]
    first_s: float | None


def canary_for(suite: Suite, questions: Path = QUESTIONS) -> Canary:
    """The canary of a suite: the cases that are listed for it, else its named ones.

    Raises:
        SuiteError: a case is listed that the suite does not hold, or there is none to ask.
    """
    listed = tomllib.loads(questions.read_text("utf-8"))
    known = {case.id: case for case in suite.cases}
    names = listed["cases"].get(suite.name)
    if names is None:
        names = [case.id for case in suite.cases if case.named]
    if missing := [name for name in names if name not in known]:
        raise SuiteError(f"{questions.name}: suite {suite.name} has no case {missing[0]!r}")
    if not names:
        raise SuiteError(f"{questions.name}: no case of suite {suite.name} is listed, and none is named")
    return Canary(tuple(known[name] for name in names), suite.sampling, listed["least"])


async def probe(
    url: str,
    served_name: str,
    dialect: Dialect,
    canary: Canary,
    *,
    tokens: Collection[str] = (),
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts = TIMEOUTS,
) -> dict[str, object]:
    """Ask every question, one at a time, and judge the answers; how many were good, by gate.

    `url` is without `/v1`; `tokens` are the model's special tokens, where they are known.

    Raises:
        EffectFailed: canary_failed, with the gates that it failed and its worst answers.
    """
    answers = []
    try:
        async with Wire(timeouts) as wire:
            target = target_of(url, served_name, dialect, headers)
            for case in canary.cases:
                reply, _ = await ask(wire, target, case, canary.sampling)
                answers.append(judged(case, reply, tokens))
                if reply.fault is not None:
                    break  # it is gone, or hangs: there is no sense in waiting for it again and again
    except RunError as error:
        raise EffectFailed(Fault("canary_failed", str(error))) from None
    if fault := failure(answers, canary.least):
        raise EffectFailed(fault)
    return evidence(answers)


def judged(case: Case, reply: Reply, tokens: Collection[str]) -> Answer:
    """One reply, by every gate that counts. A reply that did not come is bad for all of them."""
    gates = (*ALWAYS, *(gate for gate in case.gates if gate in EXPECTED))
    visible = reply.clocks.visible
    lost = f"{reply.fault.kind}: {reply.fault.detail}" if reply.fault else ""
    bad = {gate: lost or examine(gate, case, reply, tokens) for gate in gates}
    return Answer(case.id, bad, None if visible is None else visible / 1e9)


def failure(answers: Iterable[Answer], least: Mapping[str, float]) -> Fault | None:
    """The gates that the answers fail, with the first bad answers of each; None: it sings."""
    failed = []
    for gate, found in _by_gate(answers).items():
        bad = [(case, why) for case, why in found if why]
        if len(found) - len(bad) < math.ceil(least.get(gate, 1.0) * len(found)):
            shown = "; ".join(f"{case}: {why:.120}" for case, why in bad[:_SHOWN])
            failed.append(f"{gate}: {len(bad)} of {len(found)} bad ({shown})")
    return Fault("canary_failed", " | ".join(failed).replace("\n", " ")) if failed else None


def evidence(answers: Iterable[Answer]) -> dict[str, object]:
    """[good, all] by gate, and the median time to first content in seconds."""
    answers = tuple(answers)
    times = sorted(answer.first_s for answer in answers if answer.first_s is not None)
    counts = {
        gate: [sum(not why for _, why in found), len(found)] for gate, found in _by_gate(answers).items()
    }
    return {
        "asked": len(answers),
        "good": counts,
        "first_content_s": round(times[len(times) // 2], 4) if times else None,
    }


def _by_gate(answers: Iterable[Answer]) -> dict[str, list[tuple[str, str]]]:
    found = defaultdict(list)
    for answer in answers:
        for gate, why in answer.gates.items():
            found[gate].append((answer.case, why))
    return dict(found)
