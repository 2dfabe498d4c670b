"""Runs every check on the evidence: host, image, model, engine, configuration. Pure."""

from collections.abc import Mapping
from typing import Final

from deploy.doctor import configuration, engine_flags, host, image, memory, model
from deploy.doctor.evidence import Evidence
from deploy.doctor.result import CheckResult, Diagnosis, EngineCheck, HostCheck

ONCE: Final[Mapping[str, HostCheck]] = {**host.CHECKS, **memory.CHECKS}
PER_ENGINE: Final[Mapping[str, EngineCheck]] = {**image.CHECKS, **model.CHECKS, **engine_flags.CHECKS}
AFTER: Final[Mapping[str, HostCheck]] = configuration.CHECKS
IDS: Final = (*ONCE, *PER_ENGINE, *AFTER)


def examine(evidence: Evidence) -> tuple[Diagnosis, ...]:
    """A diagnosis for each check that applies, and for each engine that it applies to."""
    found = [_finding(name, "", check(evidence)) for name, check in ONCE.items()]
    for name, one in PER_ENGINE.items():
        found += [_finding(name, engine, one(evidence, engine)) for engine in evidence.engines]
    found += [_finding(name, "", check(evidence)) for name, check in AFTER.items()]
    return tuple(finding for finding in found if finding is not None)


def silent(findings: tuple[Diagnosis, ...]) -> tuple[str, ...]:
    """The ids of checks that did not apply to anything."""
    said = {finding.id for finding in findings}
    return tuple(name for name in IDS if name not in said)


def _finding(name: str, engine: str, said: CheckResult | None) -> Diagnosis | None:
    return None if said is None else Diagnosis(name, engine, said.state, said.evidence, said.fix)
