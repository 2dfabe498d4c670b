"""Operations in the registry: each step of the machine as one transaction with its aliases and its event.

This is where "intent committed, then effect, then outcome" meets the disk: when `commit` returns, the
state is safe, and its effect may be run. The machine's own text is read back strictly.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.promotion.machine import Machine, Move, Step
from app.promotion.phases import Done, Event, Failed, Phase, Refused
from app.promotion.plan import Kind, Plan
from app.registry.reader import Reader
from app.registry.registry import Registry
from app.registry.values import AliasMove, Entry, Operation
from gates.report.codec import canonical, decode, encode


def begin(
    registry: Registry, plan: Plan, *, at: str, actor: str, key: str | None = None, request: str | None = None
) -> Operation:
    """A queued operation; or the one that the same idempotency key and request began before.

    Raises:
        KeyReused, OperationUnderWay: nothing was written.
    """
    operation = Operation(
        id=plan.operation,
        kind=plan.kind,
        model=plan.model,
        phase=Phase.QUEUED,
        state=_text(encode(Machine(plan))),
        created=at,
        key=key,
        request=request,
    )
    detail = {"plan": encode(plan)}
    entry = Entry(
        at=at, actor=actor, verb=f"{plan.kind}.queued", subject=plan.model, operation=plan.operation, detail=detail
    )  # fmt: skip
    return registry.begin(operation, entry)


def commit(
    registry: Registry,
    step: Step,
    event: Event,
    *,
    at: str,
    actor: str,
    evidence: Mapping[str, object] | None = None,
) -> None:
    """Write what an event led to; `evidence` are the numbers that an effect's outcome rests on.

    Raises:
        GenerationMoved: `live` is not where the plan found it. Nothing was written: the machine is
            where it was, and is to be fed the failure of its effect.
        UnknownRow: the operation has ended.
    """
    machine, plan = step.machine, step.machine.plan
    operation = replace(
        registry.operation(plan.operation),
        phase=machine.phase,
        state=_text(encode(machine)),
        done=machine.is_done,
        result=_text({"live": plan.candidate}) if machine.phase is Phase.SUCCEEDED else None,
        error=_text(encode(machine.fault)) if machine.is_done and machine.fault else None,
    )
    entry = Entry(
        at=at,
        actor=actor,
        verb=f"{plan.kind}.{machine.phase}",
        subject=plan.model,
        operation=plan.operation,
        detail=_told(step, event, evidence or {}),
    )
    registry.advance(operation, (*_moves(step.move), *_compared(registry, machine)), entry)


def load(reader: Reader, operation: str) -> Machine:
    """The machine of an operation. Raises UnknownRow, CodecError (written by another program)."""
    machine: Machine = decode(
        Machine, json.loads(reader.operation(operation).state), f"operation {operation}"
    )
    return machine


def unfinished(reader: Reader) -> tuple[Machine, ...]:
    """Every operation that has not ended, the oldest first."""
    return tuple(load(reader, found.id) for found in reader.operations(unfinished_only=True))


def promoted(reader: Reader) -> frozenset[str]:
    """The engines, by digest, that a promotion with a report has put in service."""
    done = (load(reader, op.id) for op in reader.operations() if op.phase == Phase.SUCCEEDED)
    return frozenset(m.plan.candidate for m in done if m.plan.report is not None)


def _moves(move: Move | None) -> tuple[AliasMove, ...]:
    if move is None:
        return ()
    return (
        AliasMove(model=move.model, name="live", engine=move.live, generation=move.generation),
        # It moves with `live` and by the same transaction, so one comparison guards both.
        AliasMove(model=move.model, name="previous", engine=move.previous),
    )


def _compared(registry: Registry, machine: Machine) -> tuple[AliasMove, ...]:
    """`baseline` follows a promotion that succeeded: what its report compared the new live engine with."""
    plan = machine.plan
    if machine.phase is not Phase.SUCCEEDED or plan.kind is not Kind.PROMOTE:
        return ()
    report = registry.report(plan.report or "")
    engine = registry.engine_of(report.baseline) if report else None
    return (AliasMove(model=plan.model, name="baseline", engine=engine.digest),) if engine else ()


def _told(step: Step, event: Event, evidence: Mapping[str, object]) -> dict[str, object]:
    detail: dict[str, object] = {"event": type(event).__name__.lower(), **encode(event)}
    if isinstance(event, Done | Failed | Refused):
        detail["effect"] = detail.pop("key")
    if step.effect is not None:
        detail["next"] = step.effect.key
    if step.move is not None:
        detail["move"] = encode(step.move)
    if step.machine.fault is not None:
        detail["fault"] = encode(step.machine.fault)
    if evidence:
        detail["evidence"] = dict(evidence)
    return detail


def _text(value: Any) -> str:
    return canonical(value).decode()
