"""A report as JSON values, with the labels that the console displays. Pure."""

from typing import Any

from gates.judge.formatting import title
from gates.report import labels
from gates.report.statement import ComparedArm, Statement


def reading(statement: Statement, digest: str, signers: tuple[str, ...]) -> dict[str, Any]:
    """A summary of a report. `signers` are the ids of trusted keys that have signed it, possibly none."""
    return {
        "digest": digest,
        "trusted": bool(signers),
        "signers": list(signers),
        "verdict": str(statement.verdict.value),
        "headline": labels.headline(statement),
        "reasons": [f"{gate}: {why}" if gate else why for gate, why in labels.reasons(statement)],
        "created": statement.created,
        "expires": statement.expires,
        "candidate": _arm(statement.candidate),
        "baseline": _arm(statement.baseline),
        "suite": statement.suite.name,
        "policy": statement.policy.name,
        "gates": [_gate(statement, name) for name in labels.gate_names(statement)],
    }


def _arm(arm: ComparedArm) -> dict[str, str]:
    return {"model": arm.model.name, "format": arm.model.format, "engine": arm.engine.name}


def _gate(statement: Statement, name: str) -> dict[str, Any]:
    verdict, decides = labels.gate_verdict(statement, name)
    candidate, baseline, required = labels.overview_cells(statement, name)
    return {
        "title": title(name),
        "verdict": str(verdict.value),
        "decides": decides,
        "candidate": candidate,
        "baseline": baseline,
        "required": required,
    }
