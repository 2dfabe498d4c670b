"""JSON views of operations, plans and events, for operators. Pure."""

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from app.promotion.repository import state_of
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import OperationPhase, OperationPlan, OperationState, path
from app.registry.values import AuditEvent, OperationRow
from gates.decode.decoder import encode


def row_view(operation: OperationRow, catalogue: SpecCatalogue) -> dict[str, Any]:
    """An operation as the registry has it. Raises DecodeError."""
    return operation_view(state_of(operation), operation.created, catalogue)


def operation_view(
    state: OperationState, created: str, catalogue: SpecCatalogue, *, written: bool = True
) -> dict[str, Any]:
    """An operation; with `result` or `error` when it is done. `written`: the registry has this state."""
    plan, effect = state.plan, state.effect
    fault = encode(state.fault) if state.fault else None
    view = {
        "id": plan.operation,
        **_plan(plan, catalogue),
        "phase": str(state.phase),
        "effect": str(effect.action) if effect else None,
        "done": state.is_done,
        "report": plan.report,
        "weight": effect.weight if effect and state.phase is OperationPhase.SHIFTING else None,
        "created": created,
        "written": written,
        "fault": fault,
    }
    if state.phase is OperationPhase.SUCCEEDED:
        return {**view, "result": {"live": catalogue.name(plan.candidate)}}
    if state.is_done:
        return {**view, "error": fault or {"code": str(state.phase), "message": str(state.phase)}}
    return view


def plan_view(plan: OperationPlan, catalogue: SpecCatalogue, up: Collection[str]) -> dict[str, Any]:
    """What an operation would do, for a dry run. `up` are the engines that run already."""
    return {
        "dry_run": True,
        **_plan(plan, catalogue),
        "starts": [name for name in map(catalogue.name, plan.new) if name not in up],
        "stops": [catalogue.name(engine) for engine in plan.old if engine not in plan.resident],
        "stays": [catalogue.name(engine) for engine in plan.resident],
        "phases": [str(phase) for phase in path(plan) if phase is not OperationPhase.QUEUED],
    }


def _plan(plan: OperationPlan, catalogue: SpecCatalogue) -> dict[str, Any]:
    return {
        "kind": str(plan.kind),
        "model": plan.model,
        "engine": catalogue.name(plan.candidate),
        "incumbent": catalogue.name(plan.incumbent),
        "engines": [catalogue.name(engine) for engine in plan.new],
        "incumbents": [catalogue.name(engine) for engine in plan.old],
        "strategy": str(plan.strategy),
        "bake_seconds": plan.bake_s,
        "shift_weights": plan.shift_weights if plan.shifts else (),
        "shift_seconds": plan.shift_s,
    }


def step_view(event: AuditEvent) -> dict[str, Any]:
    """One event of an operation, for a client that follows it."""
    detail = {"event": "queued", "evidence": {}, **json.loads(event.detail)}
    names = ("event", "effect", "next", "weight", "fault", "evidence")
    phase = event.verb.partition(".")[2]
    return {"seq": event.seq, "at": event.at, "phase": phase, **{name: detail.get(name) for name in names}}


def event_view(event: AuditEvent) -> dict[str, Any]:
    """One line of the audit."""
    return asdict(event) | {"detail": json.loads(event.detail)}
