"""The registry of the checks, and their results."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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


CheckResult = tuple[CheckState, str, str]
"""A check's outcome: the state, the facts, and what to do about them; for UNKNOWN, how to get the evidence."""


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
    return CheckState.OK, evidence, ""


def warn(evidence: str, fix: str) -> CheckResult:
    """It works, at a cost."""
    return CheckState.WARN, evidence, fix


def fail(evidence: str, fix: str) -> CheckResult:
    """It does not work, or is unsafe."""
    return CheckState.FAIL, evidence, fix


def unknown(missing: str, how: str) -> CheckResult:
    """The evidence is missing."""
    return CheckState.UNKNOWN, missing, how


Finder = Callable[[Evidence], Iterator[Diagnosis]]
CHECKS: Final[dict[str, Finder]] = {}
"""Every check by its id; the modules of checks enter them here."""
HostCheck = Callable[[Evidence], CheckResult | None]
"""None: the check does not apply."""
Subject = TypeVar("Subject")
EngineCheck = Callable[[Evidence, str, Subject], CheckResult | None]


def check(
    name: str, *, applies: Callable[[Evidence], bool] = lambda _: True
) -> Callable[[HostCheck], HostCheck]:
    """Decorator: enter a check of the whole machine under its id. Where `applies` is false, it finds nothing."""

    def enter(function: HostCheck) -> HostCheck:
        def run(evidence: Evidence) -> Iterator[Diagnosis]:
            if applies(evidence) and (found := function(evidence)) is not None:
                yield Diagnosis(name, "", *found)

        CHECKS[name] = run
        return function

    return enter


def engine_check(
    name: str, subject: Callable[[Evidence, str], Subject | None], *, dialect: str | None = None
) -> Callable[[EngineCheck[Subject]], EngineCheck[Subject]]:
    """The same for a check of each engine's image, model or flags: without a `subject`, or in another dialect, it finds nothing."""

    def enter(function: EngineCheck[Subject]) -> EngineCheck[Subject]:
        def run(evidence: Evidence) -> Iterator[Diagnosis]:
            for engine, spec in evidence.engines.items():
                about = subject(evidence, engine) if dialect in (None, spec.dialect) else None
                if about is not None and (found := function(evidence, engine, about)) is not None:
                    yield Diagnosis(name, engine, *found)

        CHECKS[name] = run
        return function

    return enter


def worst(findings: Iterable[Diagnosis]) -> CheckState:
    """The worst state; OK if there are no findings."""
    states = {finding.state for finding in findings}
    return next((state for state in WORST_FIRST if state in states), CheckState.OK)
