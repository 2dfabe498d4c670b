"""What a suite is made of: cases, the sampling they are asked with, and their digest. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every sampling parameter that a request carries; nothing is left to an engine's defaults.

    `generation_config.json` and llama-server's own defaults would differ between baseline and
    candidate, and the gate would compare samplers.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1  # all; a dialect that says it otherwise is written so by the request
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt with everything that it is asked with, and what is expected of the reply.

    `gates` are the gates that the case counts for; `named` those of them for which it is one of
    the seeds' named cases. `stage` is 1, or 2 for the pre-registered extension. `messages` are
    complete, the system prompt included; `tools` are OpenAI tool objects. `expect` holds only
    what the case's gates need:

        calls         list of {"name": str, "arguments": {parameter: [accepted values]}};
                      [] means that no call may be made. A parameter whose list holds "" may be absent.
                      `gates/suite/expect.py` has the forms of an accepted value, and judges by them.
        answer        {"any": [text, ...]}, one of which must be said, or {"number": x, "tolerance": t};
                      with both, either will do
        max_seconds   the longest that the reply may take to speak
        script        "Latn" or "Knda"

    `turn` is a label of the kind of prompt, for tables ("greeting", "fact", ...).
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
    """A named, versioned set of cases. `digest` is over everything that reaches a model or a judge."""

    name: str
    version: int
    description: str
    sampling: Sampling
    cases: tuple[Case, ...]
    digest: str  # sha256:<64 hex digits>

    def of(self, gate: str, stage: int | None = None) -> tuple[Case, ...]:
        """The cases that count for a gate, in the suite's order; of one stage if asked."""
        return tuple(c for c in self.cases if gate in c.gates and stage in (None, c.stage))
