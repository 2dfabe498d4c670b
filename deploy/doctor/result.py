"""The results of checks. Values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from deploy.doctor.evidence import Evidence


class CheckState(StrEnum):
    """The outcome of a check."""

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
"""A warning does not fail. An unknown is not a pass, as in the gate."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's outcome: the facts, and what to do about them; for UNKNOWN, how to get the evidence."""

    state: CheckState
    evidence: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A check's result under its id; `engine` is "" if it concerns no single engine."""

    id: str
    engine: str
    state: CheckState
    evidence: str
    fix: str


def ok(evidence: str) -> CheckResult:
    """The check passed."""
    return CheckResult(CheckState.OK, evidence)


def warn(evidence: str, fix: str) -> CheckResult:
    """It works, at a cost."""
    return CheckResult(CheckState.WARN, evidence, fix)


def fail(evidence: str, fix: str) -> CheckResult:
    """It does not work, or is unsafe."""
    return CheckResult(CheckState.FAIL, evidence, fix)


def unknown(missing: str, how: str) -> CheckResult:
    """The evidence is missing."""
    return CheckResult(CheckState.UNKNOWN, missing, how)


HostCheck = Callable[[Evidence], CheckResult | None]
"""None: the check does not apply."""
EngineCheck = Callable[[Evidence, str], CheckResult | None]
"""A check of one engine, by its name."""
Subject = TypeVar("Subject")


def check(
    checks: dict[str, HostCheck], name: str, *, applies: Callable[[Evidence], bool] = lambda _: True
) -> Callable[[HostCheck], HostCheck]:
    """Decorator: enter a check into its module's table under its id. Where `applies` is false, it gives None."""

    def enter(function: HostCheck) -> HostCheck:
        checks[name] = lambda evidence: function(evidence) if applies(evidence) else None
        return function

    return enter


def engine_check(
    checks: dict[str, EngineCheck],
    name: str,
    subject: Callable[[Evidence, str], Subject | None],
    *,
    dialect: str | None = None,
) -> Callable[[Callable[[Evidence, str, Subject], CheckResult | None]], EngineCheck]:
    """The same for a check of an engine's image, model or flags: where there is no `subject`, or the dialect is another, it gives None."""

    def enter(function: Callable[[Evidence, str, Subject], CheckResult | None]) -> EngineCheck:
        def guarded(evidence: Evidence, engine: str) -> CheckResult | None:
            found = subject(evidence, engine)
            if found is None or dialect not in (None, evidence.engines[engine].dialect):
                return None
            return function(evidence, engine, found)

        checks[name] = guarded
        return guarded

    return enter


def worst(findings: Iterable[Diagnosis]) -> CheckState:
    """The worst state; OK if there are no findings."""
    states = {finding.state for finding in findings}
    return next((state for state in WORST_FIRST if state in states), CheckState.OK)
