"""Runs every check on the evidence: host, image, model, engine, configuration. Pure."""

from collections.abc import Sequence
from typing import Final

from deploy.doctor import configuration, engine_flags, host, image, model
from deploy.doctor.evidence import Evidence
from deploy.doctor.result import CHECKS, Diagnosis

MODULES: Final = (host, image, model, engine_flags, configuration)
"""Their import entered the checks."""
GROUPS: Final = ("host", "image", "model", "engine", "config")
IDS: Final = tuple(sorted(CHECKS, key=lambda name: GROUPS.index(name.partition(".")[0])))


def examine(evidence: Evidence) -> tuple[Diagnosis, ...]:
    """A diagnosis for each check that applies, and for each engine that it applies to."""
    return tuple(found for name in IDS for found in CHECKS[name](evidence))


def silent(findings: Sequence[Diagnosis]) -> tuple[str, ...]:
    """The ids of checks that did not apply to anything."""
    said = {finding.id for finding in findings}
    return tuple(name for name in IDS if name not in said)
