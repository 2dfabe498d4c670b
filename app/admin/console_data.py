"""What the console shows of a report: the judge's own words, as JSON values. Pure."""

from typing import Any

from gates.report import words
from gates.report.statement import Arm, Statement


def reading(statement: Statement, digest: str, signers: tuple[str, ...]) -> dict[str, Any]:
    """A report in a dozen lines. Without `signers` (key ids) nobody who is trusted here has signed it."""
    return {
        "digest": digest,
        "trusted": bool(signers),
        "signers": list(signers),
        "verdict": str(statement.verdict.value),
        "headline": words.headline(statement),
        "reasons": [f"{gate}: {why}" if gate else why for gate, why in words.reasons(statement)],
        "created": statement.created,
        "expires": statement.expires,
        "candidate": _arm(statement.candidate),
        "baseline": _arm(statement.baseline),
        "suite": statement.suite.name,
        "policy": statement.policy.name,
        "gates": [_gate(statement, name) for name in words.gate_names(statement)],
    }


def _arm(arm: Arm) -> dict[str, str]:
    return {"model": arm.model.name, "format": arm.model.format, "engine": arm.engine.name}


def _gate(statement: Statement, name: str) -> dict[str, Any]:
    verdict, decides = words.gate_verdict(statement, name)
    candidate, baseline, required = words.glance(statement, name)
    return {
        "title": words.title(name),
        "verdict": str(verdict.value),
        "decides": decides,
        "candidate": candidate,
        "baseline": baseline,
        "required": required,
    }
