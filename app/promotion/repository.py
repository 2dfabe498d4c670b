"""Operations in the registry, and the executor that runs all work on the registry in one thread.

Each step of the state machine is one transaction with its aliases and its audit event. When `commit` returns, the state
is durable, and its effect may be run. The stored state is read back strictly.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from app.promotion.state_machine import (
    EffectDone,
    EffectFailed,
    EffectRefused,
    OperationEvent,
    OperationKind,
    OperationPhase,
    OperationPlan,
    OperationState,
    Transition,
)
from app.registry.errors import StorageFailed
from app.registry.registry import Registry, RegistryReader
from app.registry.values import AuditEntry, KnownReport, OperationRow, timestamp
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from gates.decode.decoder import canonical, encode, read

T = TypeVar("T")

OVERRIDE = "override:"
"""A plan's `report` that begins so names an override, by the number of its audit event, and no report."""

ADDED = {"candidates": [], "incumbents": [], "shift_weights": [], "shift_s": 60.0}
"""Fields of a plan that earlier programs did not write, as they are to be read there."""

FILE = "registry.db"
"""In the state folder."""


def now() -> str:
    """The present time as the registry stores it."""
    return timestamp(datetime.now(UTC))


class RegistryExecutor:
    """Runs work on the registry in a thread of its own, one call at a time in their order: SQLite waits for the disk.

    A caller that stops waiting does not undo what it asked for. `open` it first; `close` releases the writer's lock.
    """

    def __init__(self, state_dir: Path, metrics: Metrics, log: Logger) -> None:
        self._metrics, self._log = metrics, log
        self._fault: str | None = None  # the code of the disk's last failure, while it lasts
        self._path = state_dir / FILE
        self._thread = ThreadPoolExecutor(1, "registry")
        self._registry: Registry | None = None

    @property
    def is_open(self) -> bool:
        """Whether `run` may be called."""
        return self._registry is not None

    @property
    def takes_writes(self) -> bool:
        """Whether the last transaction could be written."""
        return self._registry is not None and self._registry.takes_writes

    async def open(self) -> None:
        """Raises RegistryError: another gateway has it, or it is no registry; says which file."""
        self._registry = await self._in_thread(self._open)

    def _open(self) -> Registry:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Registry(self._path)

    async def run(self, work: Callable[[Registry], T]) -> T:
        """The result of `work`, or its error. Raises StorageMissing if the file is gone; nothing is done then."""
        registry = self._registry
        assert registry is not None  # not called before it is open

        def checked() -> T:
            registry.check_is_there()
            return work(registry)

        return await self._in_thread(checked)

    async def close(self) -> None:
        """Idempotent."""
        registry, self._registry = self._registry, None
        if registry is not None:
            await self._in_thread(registry.close)
        self._thread.shutdown(wait=False)

    def failed(self, error: StorageFailed) -> None:
        """Count a failure of the state folder; log it when its code changes."""
        self._metrics.count("manners_state_failures_total", error.code)
        self._metrics.gauge("manners_state_available", 0)
        if self._fault != error.code:
            self._log.error("registry_failed", code=error.code, error=str(error))
        self._fault = error.code

    def works(self) -> None:
        """It was written; log the end of a failure."""
        self._metrics.gauge("manners_state_available", 1)
        if self._fault is not None:
            self._log.warning("registry_works_again", code=self._fault)
        self._fault = None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


# ----------------------------------------------------------------------------------------- writing


def begin(
    registry: Registry,
    plan: OperationPlan,
    *,
    at: str,
    actor: str,
    key: str | None = None,
    request: str | None = None,
) -> None:
    """Add a queued operation. Raises Conflict: nothing was written."""
    operation = OperationRow(
        id=plan.operation,
        kind=plan.kind,
        model=plan.model,
        phase=OperationPhase.QUEUED,
        state=_text(encode(OperationState(plan))),
        created=at,
        key=key,
        request=request,
    )
    entry = AuditEntry(
        at=at,
        actor=actor,
        verb=f"{plan.kind}.queued",
        subject=plan.model,
        operation=plan.operation,
        detail={"plan": encode(plan)},
    )
    registry.begin(operation, entry)


def commit(
    registry: Registry,
    transition: Transition,
    event: OperationEvent,
    *,
    at: str,
    actor: str,
    evidence: Mapping[str, object] | None = None,
) -> None:
    """Write what an event led to; `evidence` are the numbers that an effect's outcome rests on.

    Raises:
        GenerationMoved: `live` is not where the plan found it. Nothing was written: the operation is
            in the state before, and is to be fed the failure of its effect.
        UnknownRow: the operation has ended.
    """
    state, plan = transition.state, transition.state.plan
    operation = replace(
        registry.operation(plan.operation),
        phase=state.phase,
        state=_text(encode(state)),
        done=state.is_done,
    )
    entry = AuditEntry(
        at=at,
        actor=actor,
        verb=f"{plan.kind}.{state.phase}",
        subject=plan.model,
        operation=plan.operation,
        detail=_detail(transition, event, evidence or {}),
    )
    registry.advance(operation, transition.route_change, entry)


def _detail(
    transition: Transition, event: OperationEvent, evidence: Mapping[str, object]
) -> dict[str, object]:
    """The audit's detail of a step."""
    name = type(event).__name__.removeprefix("Effect").lower()
    detail: dict[str, object] = {"event": name, **encode(event)}
    if isinstance(event, EffectDone | EffectFailed | EffectRefused):
        detail["effect"] = detail.pop("key")
    if transition.effect is not None:
        detail["next"] = transition.effect.key
        if transition.effect.weight:
            detail["weight"] = transition.effect.weight
    if transition.route_change is not None:
        detail["move"] = encode(transition.route_change)
    if transition.state.fault is not None:
        detail["fault"] = encode(transition.state.fault)
    if evidence:
        detail["evidence"] = dict(evidence)
    return detail


def _text(value: Any) -> str:
    return canonical(value).decode()


# ----------------------------------------------------------------------------------------- reading


def state_of(operation: OperationRow) -> OperationState:
    """The stored state of an operation. Raises DecodeError: it was written by another program."""
    stored = json.loads(operation.state)
    if isinstance(stored, dict) and isinstance(stored.get("plan"), dict):
        stored["plan"] = {**ADDED, **stored["plan"]}
        stored["plan"].pop("max_unavailable", None)  # 0.3.0 replaced replicas one after the other
        if stored.get("phase") == "rolling":
            stored |= {"phase": "switching", "at": 0}
    state: OperationState = read(OperationState, stored, f"operation {operation.id}")
    return state


def _switched(reader: RegistryReader) -> Iterator[OperationPlan]:
    """The plans of the operations that put their candidate in service and have not taken it out, the latest first."""
    for row in reversed(reader.all(OperationRow)):
        plan, live = state_of(row).plan, reader.alias(row.model, "live")
        under_way = not row.done and live is not None and live.engine == plan.candidate
        if row.phase == OperationPhase.SUCCEEDED or under_way:
            yield plan


def gated(reader: RegistryReader, roots: Mapping[str, str | None]) -> frozenset[str]:
    """The engines, by digest, that a promotion has put in service on a report that passed without an override.

    `roots` are the root digests of the engines' weights as they are now: one whose weights are not those of the
    report is not among them.
    """
    found = set()
    for plan in _switched(reader):
        if rests_on_report(reader, plan):
            report = reader.find(KnownReport, digest=plan.report)
            found |= {
                one
                for one in plan.new
                if report is None or roots.get(one, report.artefact) == report.artefact
            }
    return frozenset(found)


def replicas_of(reader: RegistryReader, model: str, engine: str) -> tuple[str, ...]:
    """The engines, by digest, that served the model together with this one, which the alias names; itself the first."""
    for row in reversed(reader.all(OperationRow)):
        plan = state_of(row).plan
        if plan.model == model and plan.candidate == engine and row.phase == OperationPhase.SUCCEEDED:
            return plan.new
        if plan.model == model and plan.incumbent == engine:
            return plan.old
    return (engine,)


def rests_on_report(reader: RegistryReader, plan: OperationPlan) -> bool:
    """Whether an operation is a promotion on a report, and no refusal was waived for it."""
    if plan.kind is not OperationKind.PROMOTE or plan.report is None or plan.report.startswith(OVERRIDE):
        return False
    return not _waived(reader, plan.operation)


def _waived(reader: RegistryReader, operation: str) -> frozenset[str]:
    """The refusals that overrides waived for a promotion."""
    steps = (json.loads(event.detail) for event in reader.events(operation=operation))
    return frozenset(code for step in steps for code in step.get("evidence", {}).get("waived", ()))


def waived_for(reader: RegistryReader, model: str, engine: str) -> frozenset[str]:
    """The refusals that overrides waived when this engine was last put in service for the model."""
    for plan in _switched(reader):
        if plan.model == model and plan.kind is OperationKind.PROMOTE and engine in plan.new:
            return _waived(reader, plan.operation)
    return frozenset()


def has_reports(reader: RegistryReader, model: str, artefacts: Collection[str]) -> bool:
    """Whether there is a report about one of these artefacts, or a promotion of this model that rested on one."""
    return any(report.artefact in artefacts for report in reader.all(KnownReport)) or was_promoted_on_report(
        reader, model
    )


def was_promoted_on_report(reader: RegistryReader, model: str) -> bool:
    """Whether an engine of this model was promoted on a report."""
    return any(plan.model == model and rests_on_report(reader, plan) for plan in _switched(reader))
