"""Decide whether a teacher's message may be used as training data, with the same detectors as the gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gates.contracts.case import Case
from gates.detect.detection import Detection
from gates.detect.refusal import find_refusal
from gates.detect.toolcall import find_call_faults
from gates.judge.score import REPLY_DETECTORS, ReplyDetector
from gates.reply.reply import Reply

SPOKEN: Final = ("raw_call", "leak", "empty", "no_markdown", "loop", "verbosity", "speakable")
"""The gates that every answer has to pass."""
CALLED: Final = ("raw_call", "leak", "no_markdown", "loop")
"""The gates for text beside a tool call, which may be empty."""


@dataclass(frozen=True, slots=True)
class ExpectedMessage:
    """The requirements for a message.

    calls: in the form of `gates.suite.expect`; () for none, None for any valid calls. answer: the expected answer,
    or None. script: "" for any. declines: it may say that something cannot be done.
    """

    calls: Sequence[Mapping[str, Any]] | None
    tools: Sequence[Mapping[str, Any]] = ()
    max_seconds: float | None = None
    script: str = ""
    answer: Mapping[str, Any] | None = None
    declines: bool = False


def find_faults(reply: Reply, expected: ExpectedMessage) -> list[Detection]:
    """All findings that disqualify a message. A thought in a separate field is not judged."""
    bare = replace(reply, reasoning="", usage=None)
    case = _case(expected)
    found = [finding for gate in _gates(bare, expected) for finding in _JUDGES[gate](case, bare, ())]
    return [finding for finding in found if finding.decides]


def reason(finding: Detection) -> str:
    """The code under which a finding is counted, such as "markdown: bullet_list"."""
    return f"{finding.detector}: {finding.kind}"


_JUDGES: Final[Mapping[str, ReplyDetector]] = {
    **REPLY_DETECTORS,
    "refusal": lambda case, reply, _: find_refusal(reply.content),
    "sound": lambda case, reply, _: find_call_faults(reply.calls, case.tools),
}


def _gates(reply: Reply, expected: ExpectedMessage) -> list[str]:
    gates = ["sound" if expected.calls is None else "tools"]
    if reply.calls:
        return [*gates, *CALLED]
    gates += [gate for gate in SPOKEN if gate != "verbosity" or expected.max_seconds]
    gates += ["script"] if expected.script else []
    gates += ["factual"] if expected.answer else []
    return gates if expected.calls is None or expected.declines else [*gates, "refusal"]


def _case(expected: ExpectedMessage) -> Case:
    values = {
        "calls": list(expected.calls or ()),
        "max_seconds": expected.max_seconds,
        "script": expected.script,
        "answer": expected.answer,
    }
    return Case(id="", gates=(), messages=(), tools=tuple(expected.tools), expect=values)
