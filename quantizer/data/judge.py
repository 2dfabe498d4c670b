"""Decide whether a teacher's message may be used as training data, with the same detectors as the gates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gates.contracts.case import Case
from gates.detect.catalogue import GATES
from gates.detect.detection import Detection
from gates.detect.everyday import find_refusal
from gates.detect.toolcall import find_call_faults
from gates.reply.reply import Reply

SPOKEN: Final = tuple(gate.name for gate in GATES.values() if gate.training != "never")
"""The gates that every answer has to pass."""
CALLED: Final = tuple(gate.name for gate in GATES.values() if gate.training == "text")
"""The gates for text beside a tool call, which may be empty."""


@dataclass(frozen=True, slots=True)
class ExpectedMessage:
    """The requirements for a message. `calls`: as in `gates.detect.toolcall`, None for any valid calls; `script`: "" for any."""

    calls: Sequence[Mapping[str, Any]] | None
    tools: Sequence[Mapping[str, Any]] = ()
    max_seconds: float | None = None
    script: str = ""
    answer: Mapping[str, Any] | None = None


def find_faults(reply: Reply, expected: ExpectedMessage) -> list[Detection]:
    """All findings that disqualify a message. A thought in a separate field is not judged."""
    bare = replace(reply, reasoning="", usage=None)
    case = _case(expected)
    found = [finding for gate in _gates(bare, expected) for finding in GATES[gate].findings(case, bare)]
    if expected.calls is None:
        found = [*find_call_faults(bare.calls, case.tools), *found]
    elif not bare.calls:
        found += find_refusal(bare.content)
    return found


def _gates(reply: Reply, expected: ExpectedMessage) -> list[str]:
    gates = [] if expected.calls is None else ["tools"]
    if reply.calls:
        return [*gates, *CALLED]
    gates += [gate for gate in SPOKEN if gate != "verbosity" or expected.max_seconds]
    gates += ["script"] if expected.script else []
    gates += ["factual"] if expected.answer else []
    return gates


def _case(expected: ExpectedMessage) -> Case:
    values = {
        "calls": list(expected.calls or ()),
        "max_seconds": expected.max_seconds,
        "script": expected.script,
        "answer": expected.answer,
    }
    return Case(id="", gates=(), messages=(), tools=tuple(expected.tools), expect=values)
