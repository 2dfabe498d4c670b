"""A report as the console displays it, in the words of the report, as JSON values. Pure."""

from typing import Any

from gates.report import words
from gates.report.statement import Arm, Statement


def reading(statement: Statement, digest: str, signers: tuple[str, ...]) -> dict[str, Any]:
    """A summary of a report. `signers` are the ids of trusted keys that have signed it, possibly none."""
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
