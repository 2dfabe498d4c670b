"""What a check says. Values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deploy.doctor.evidence import Evidence


class State(StrEnum):
    """How it stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


WORST_FIRST: Final = (State.FAIL, State.UNKNOWN, State.WARN, State.OK)
EXIT_CODES: Final[Mapping[State, int]] = {State.OK: 0, State.WARN: 0, State.FAIL: 1, State.UNKNOWN: 2}
"""A warning is no reason to stop. What is not known is no pass, as in the gate."""


@dataclass(frozen=True, slots=True)
class Said:
    """A check's verdict: the facts it saw, and what to do about them ("" when there is nothing to do).

    For UNKNOWN, `fix` is how to get the evidence.
    """

    state: State
    evidence: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict under its check's id; `engine` is "" for what concerns no single one."""

    id: str
    engine: str
    state: State
    evidence: str
    fix: str


def ok(evidence: str) -> Said:
    """As it should be."""
    return Said(State.OK, evidence)


def warn(evidence: str, fix: str) -> Said:
    """It works, and will cost something."""
    return Said(State.WARN, evidence, fix)


def fail(evidence: str, fix: str) -> Said:
    """It does not work, or is not safe."""
    return Said(State.FAIL, evidence, fix)


def unknown(missing: str, how: str) -> Said:
    """The evidence is not there."""
    return Said(State.UNKNOWN, missing, how)


HostCheck = Callable[[Evidence], Said | None]
"""None: it does not apply here."""
EngineCheck = Callable[[Evidence, str], Said | None]
"""The same for one engine, by its name."""


def worst(findings: Iterable[Finding]) -> State:
    """The state that decides; OK if there is none."""
    states = {finding.state for finding in findings}
    return next((state for state in WORST_FIRST if state in states), State.OK)
