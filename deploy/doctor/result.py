"""What a check says. Values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deploy.doctor.evidence import Evidence


class CheckState(StrEnum):
    """How it stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


WORST_FIRST: Final = (CheckState.FAIL, CheckState.UNKNOWN, CheckState.WARN, CheckState.OK)
EXIT_CODES: Final[Mapping[CheckState, int]] = {
    CheckState.OK: 0,
    CheckState.WARN: 0,
    CheckState.FAIL: 1,
    CheckState.UNKNOWN: 2,
}
"""A warning is no reason to stop. What is not known is no pass, as in the gate."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's verdict: the facts it saw, and what to do about them ("" when there is nothing to do).

    For UNKNOWN, `fix` is how to get the evidence.
    """

    state: CheckState
    evidence: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A verdict under its check's id; `engine` is "" for what concerns no single one."""

    id: str
    engine: str
    state: CheckState
    evidence: str
    fix: str


def ok(evidence: str) -> CheckResult:
    """As it should be."""
    return CheckResult(CheckState.OK, evidence)


def warn(evidence: str, fix: str) -> CheckResult:
    """It works, and will cost something."""
    return CheckResult(CheckState.WARN, evidence, fix)


def fail(evidence: str, fix: str) -> CheckResult:
    """It does not work, or is not safe."""
    return CheckResult(CheckState.FAIL, evidence, fix)


def unknown(missing: str, how: str) -> CheckResult:
    """The evidence is not there."""
    return CheckResult(CheckState.UNKNOWN, missing, how)


HostCheck = Callable[[Evidence], CheckResult | None]
"""None: it does not apply here."""
EngineCheck = Callable[[Evidence, str], CheckResult | None]
"""The same for one engine, by its name."""


def worst(findings: Iterable[Diagnosis]) -> CheckState:
    """The state that decides; OK if there is none."""
    states = {finding.state for finding in findings}
    return next((state for state in WORST_FIRST if state in states), CheckState.OK)
