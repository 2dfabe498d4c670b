"""What operators are shown of operations, plans and events, as JSON values. Pure."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from app.promotion.machine import PATHS, Machine
from app.promotion.phases import Phase
from app.promotion.plan import Plan
from app.promotion.shelf import Shelf
from app.registry.values import Event, KnownReport, Operation
from gates.report.codec import decode, encode


def machine_of(operation: Operation) -> Machine:
    """The machine's own text, read strictly. Raises CodecError."""
    found: Machine = decode(Machine, json.loads(operation.state), f"operation {operation.id}")
    return found


def operation_view(operation: Operation, shelf: Shelf) -> dict[str, Any]:
    """An operation as it stands; `result` or `error` when it is done."""
    machine = machine_of(operation)
    plan, effect = machine.plan, machine.effect
    fault = encode(machine.fault) if machine.fault else None
    view = {
        "id": operation.id,
        "kind": str(plan.kind),
        "model": plan.model,
        "engine": shelf.name(plan.candidate),
        "incumbent": shelf.name(plan.incumbent),
        "phase": str(machine.phase),
        "effect": str(effect.verb) if effect else None,
        "done": machine.is_done,
        "strategy": str(plan.strategy),
        "report": plan.report,
        "bake_seconds": plan.bake_s,
        "created": operation.created,
        "fault": fault,
    }
    if machine.phase is Phase.SUCCEEDED:
        return {**view, "result": {"live": shelf.name(plan.candidate)}}
    if machine.is_done:
        return {**view, "error": fault or {"code": str(machine.phase), "message": str(machine.phase)}}
    return view


def plan_view(
    plan: Plan, shelf: Shelf, up: Collection[str], memory: Mapping[str, float | None]
) -> dict[str, Any]:
    """What an operation would do; the answer to a dry run. `up` are the engines that run already."""
    candidate, incumbent = shelf.name(plan.candidate), shelf.name(plan.incumbent)
    return {
        "dry_run": True,
        "kind": str(plan.kind),
        "model": plan.model,
        "engine": candidate,
        "incumbent": incumbent,
        "strategy": str(plan.strategy),
        "starts": [] if candidate in up else [candidate],
        "stops": [] if plan.incumbent in plan.resident else [incumbent],
        "stays": [shelf.name(engine) for engine in plan.resident],
        "bake_seconds": plan.bake_s,
        "memory": dict(memory),
        "phases": [str(phase) for phase in PATHS[plan.kind] if phase is not Phase.QUEUED],
    }


def step_view(event: Event) -> dict[str, Any]:
    """One event of an operation, for who follows it. Unlike the operation itself it has no `done`."""
    detail = json.loads(event.detail)
    return {
        "seq": event.seq,
        "at": event.at,
        "phase": event.verb.partition(".")[2],
        "event": detail.get("event", "queued"),
        "effect": detail.get("effect"),
        "next": detail.get("next"),
        "fault": detail.get("fault"),
        "evidence": detail.get("evidence", {}),
    }


def event_view(event: Event) -> dict[str, Any]:
    """One line of the audit."""
    return {
        "seq": event.seq,
        "at": event.at,
        "actor": event.actor,
        "verb": event.verb,
        "subject": event.subject,
        "operation": event.operation,
        "detail": json.loads(event.detail),
        "prev_hash": event.prev_hash,
        "hash": event.hash,
    }


def report_view(report: KnownReport) -> dict[str, Any]:
    """A report that was uploaded, in a line."""
    return {
        "digest": report.digest,
        "statement": report.statement,
        "artefact": report.artefact,
        "suite": report.suite,
        "policy": report.policy,
        "baseline": report.baseline,
        "verdict": report.verdict,
        "created": report.created,
    }
