"""The values of a suite: cases, their sampling parameters, and the suite's digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every sampling parameter of a request. Nothing is left to an engine's defaults.

    Defaults differ between engines and models (`generation_config.json`, llama-server's command line), so
    a parameter that is left out would make the gate compare samplers instead of weights.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = (
        -1
    )  # -1 means all tokens; the request builder translates it for engines that write it otherwise
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt, how it is sent, and what is expected of the reply.

    `gates` are the gates that the case counts for. `named` are those of them for which it is a named
    case: one of the hand-picked prompts that a floor rule counts. `stage` is 1, or 2 for the extension
    that is asked only if stage 1 does not decide. `messages` are complete, with the system prompt;
    `tools` are OpenAI tool objects. `expect` holds only what the case's gates need:

        calls         list of {"name": str, "arguments": {parameter: [accepted values]}};
                      [] means that no call may be made. A parameter whose list holds "" may be absent.
                      `gates/suite/expect.py` defines accepted values and compares with them.
        answer        {"any": [text, ...]}, one of which must be said, or {"number": x, "tolerance": t};
                      with both, one of the two is enough
        max_seconds   the longest time that the reply may take to speak, in seconds
        script        "Latn" or "Knda"

    `turn` is a label for tables ("greeting", "fact", ...).
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
