"""The values of a suite: cases, their sampling parameters, and the suite's digest; and which cases are asked, by their ids alone, so that
nobody can draw until it passes. Pure.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from gates.decode.decoder import Meta


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every sampling parameter of a request. With one left out the engine's default would hold, and the gate would compare samplers."""

    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Meta(ge=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=10**6)] = -1  # -1: all tokens; the request builder translates it
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=2)] = 1.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    max_tokens: Annotated[int, Meta(ge=1, le=10**6)] = 256


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt, how it is sent, and what is expected of the reply.

    `named`: the gates that count it as a hand-picked case (floor rules). `stage` 2 is asked only if stage 1 does not decide.
    `messages` are complete, with the system prompt. `turn` is a label for tables. `expect` holds what the gates compare with:
    calls [{"name", "arguments": {parameter: [accepted values]}}], [] for none (`gates/detect/toolcall.py`); answer {"any": [text]}
    or {"number", "tolerance"}; max_seconds to speak it; script, an ISO 15924 code; everyday.
    """

    id: str
    gates: tuple[str, ...]
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | None = None
    expect: Mapping[str, Any] = field(default_factory=dict)
    named: tuple[str, ...] = ()
    stage: int = 1
    language: str = "en"
    turn: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A named, versioned set of cases. `digest` covers everything that is sent to a model or used to judge it."""

    name: str
    version: int
    description: str
    sampling: Sampling
    cases: tuple[Case, ...]
    digest: str  # sha256:<64 hex digits>

    def of(self, gate: str, stage: int | None = None) -> tuple[Case, ...]:
        """The cases of a gate in the suite's order, of all stages or of one."""
        return tuple(c for c in self.cases if gate in c.gates and stage in (None, c.stage))


def conversations(messages: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """The conversation of each prompt, by ids: the shortest prompt that begins it. Its turns, and the same prompt again, are no new evidence."""
    said = {name: tuple(json.dumps(one, sort_keys=True) for one in of) for name, of in messages.items()}
    begun: dict[tuple[str, ...], str] = {}
    for name in sorted(said, key=lambda name: len(said[name])):
        begun.setdefault(said[name], name)
    starts = {name: [of[:n] for n in range(1, len(of) + 1)] for name, of in said.items()}
    return {name: next((begun[start] for start in of if start in begun), name) for name, of in starts.items()}


def seeded_shuffle(seed: str, ids: Iterable[str]) -> list[str]:
    """The ids by the SHA-256 of "<seed> <id>": the first form stage 1, the next stage 2, both exchangeable, as rule A's curve requires."""
    return sorted(ids, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())


def drawn(suite: Suite, sizes: Mapping[str, int]) -> Suite:
    """The suite with at least so many of each gate's stage 1 prompts, in its own order; the whole suite without sizes. The digest stays."""
    if not sizes:
        return suite
    first = {case.id: case for case in suite.cases if case.stage == 1}
    order = seeded_shuffle("draw", first)
    kept: set[str] = set()
    for gate, size in sizes.items():
        of_gate = [name for name in order if gate in first[name].gates]
        have = sum(name in kept for name in of_gate)
        kept.update([name for name in of_gate if name not in kept][: max(0, size - have)])
    return replace(suite, cases=tuple(case for case in suite.cases if case.id in kept))


def order_seed(suite: str, candidate: str) -> str:
    """The seed of a sequential run's order, from the digests of the suite and of the candidate: nobody can choose it."""
    return hashlib.sha256(f"order {suite} {candidate}".encode()).hexdigest()[:16]


def in_random_order(suite: Suite, seed: str) -> Suite:
    """The suite for a sequential run: its conversations in the seed's order, and all in stage 1. The digest stays."""
    talks = conversations({case.id: case.messages for case in suite.cases})
    place = {talk: i for i, talk in enumerate(seeded_shuffle(seed, set(talks.values())))}
    ordered = sorted(suite.cases, key=lambda case: place[talks[case.id]])
    return replace(suite, cases=tuple(replace(case, stage=1) for case in ordered))
