"""Decide whether a teacher's message may be used as training data, with the same detectors as the gates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gates.contracts.case import Case
from gates.detect.catalogue import GATES
from gates.detect.detection import Detection
from gates.detect.live import find_refusal
from gates.detect.toolcall import find_call_faults
from gates.reply.reply import Reply

SPOKEN: Final = tuple(gate.name for gate in GATES.values() if gate.training != "never")
"""The gates that every answer has to pass."""
CALLED: Final = tuple(gate.name for gate in GATES.values() if gate.training == "text")
"""The gates for text beside a tool call, which may be empty."""


def find_faults(reply: Reply, case: Case) -> list[Detection]:
    """All findings that disqualify a message. A case that expects no `calls` takes any valid ones. A thought in a separate field is not judged."""
    bare = replace(reply, reasoning="", usage=None)
    found = [finding for gate in _gates(bare, case.expect) for finding in GATES[gate].findings(case, bare)]
    if "calls" not in case.expect:
        found = [*find_call_faults(bare.calls, case.tools), *found]
    elif not bare.calls:
        found += find_refusal(bare.content)
    return found


def _gates(reply: Reply, expect: Mapping[str, Any]) -> list[str]:
    gates = ["tools"] if "calls" in expect else []
    if reply.calls:
        return [*gates, *CALLED]
    gates += [gate for gate in SPOKEN if gate != "verbosity" or expect.get("max_seconds")]
    gates += ["script"] if expect.get("script") else []
    gates += ["factual"] if expect.get("answer") else []
    return gates
