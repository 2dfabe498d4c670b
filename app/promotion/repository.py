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
from typing import TypeVar

from app.promotion.state_machine import (
    FailureReason,
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
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._registry = await self._in_thread(lambda: Registry(self._path))

    async def run(self, work: Callable[[Registry], T]) -> T:
        """The result of `work`, or its error. Raises StorageMissing if the file is gone; nothing is done then."""
        registry = self._registry
        assert registry is not None  # not called before it is open

        def checked() -> T:
            registry.check_is_there()
            return work(registry)

        return await self._in_thread(checked)

    async def write(self, work: Callable[[Registry], object]) -> bool:
        """Whether the disk took a change; a failure is reported, and can be tried again. Raises RegistryError."""
        try:
            await self.run(work)
        except StorageFailed as error:
            self.failed(error)
            return False
        self.works()
        return True

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
    state = OperationState(plan)
    operation = OperationRow(
        id=plan.operation,
        kind=plan.kind,
        model=plan.model,
        phase=state.phase,
        state=canonical(encode(state)).decode(),
        created=at,
        key=key,
        request=request,
    )
    registry.begin(operation, _entry(state, at, actor, {"plan": encode(plan)}))


def commit(
    registry: Registry,
    before: OperationState,
    event: OperationEvent,
    after: Transition,
    fault: FailureReason | None = None,
    evidence: Mapping[str, object] | None = None,
    *,
    at: str,
    actor: str,
) -> None:
    """Write what an event led to; `evidence` are the numbers that an effect's outcome rests on.

    Raises:
        GenerationMoved: `live` is not where the plan found it. Nothing was written: the operation is
            in the state before, and is to be fed the failure of its effect.
        UnknownRow: the operation has ended.
    """
    state, following = after.state, after.state.effect
    ended = before.effect if event in _OUTCOMES else None
    reason = fault or state.fault
    detail: dict[str, object] = {
        "event": str(event),
        "effect": ended and ended.key,
        "next": following and following.key,
        "weight": following and following.weight,
        "move": after.change and encode(after.change),
        "fault": reason and encode(reason),
        "evidence": evidence,
    }
    row = registry.operation(state.plan.operation)
    stored = canonical(encode(state)).decode()
    registry.advance(
        replace(row, phase=state.phase, state=stored, done=state.is_done),
        after.change,
        _entry(state, at, actor, {name: value for name, value in detail.items() if value}),
    )


_OUTCOMES = (OperationEvent.DONE, OperationEvent.FAILED, OperationEvent.REFUSED)
"""Of an effect."""


def _entry(state: OperationState, at: str, actor: str, detail: Mapping[str, object]) -> AuditEntry:
    plan = state.plan
    verb = f"{plan.kind}.{state.phase}"
    return AuditEntry(
        at=at, actor=actor, verb=verb, subject=plan.model, operation=plan.operation, detail=detail
    )


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


def _in_service(reader: RegistryReader, model: str | None = None) -> Iterator[OperationPlan]:
    """The plans of the operations that put their candidate in service and have not taken it out, the latest first."""
    for row in reversed(reader.all(OperationRow)):
        if model not in (None, row.model):
            continue
        plan, live = state_of(row).plan, reader.alias(row.model, "live")
        under_way = not row.done and live is not None and live.engine == plan.candidate
        if row.phase == OperationPhase.SUCCEEDED or under_way:
            yield plan


def gated(reader: RegistryReader, roots: Mapping[str, str | None]) -> frozenset[str]:
    """The engines, by digest, that a promotion has put in service on a report that passed without an override.

    `roots` are the root digests of the engines' weights as they are now: one whose weights are not those of the
    report is not among them.
    """
    found = set[str]()
    for plan in _in_service(reader):
        if rests_on_report(reader, plan):
            report = reader.find(KnownReport, digest=plan.report)
            found |= {
                one for one in plan.new if not report or roots.get(one, report.artefact) == report.artefact
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
    return not _waived(reader, plan)


def _waived(reader: RegistryReader, plan: OperationPlan) -> frozenset[str]:
    """The refusals that overrides waived for a promotion."""
    steps = (json.loads(event.detail) for event in reader.events(operation=plan.operation))
    return frozenset(code for step in steps for code in step.get("evidence", {}).get("waived", ()))


def waived_for(reader: RegistryReader, model: str, engine: str) -> frozenset[str]:
    """The refusals that overrides waived when this engine was last put in service for the model."""
    for plan in _in_service(reader, model):
        if plan.kind is OperationKind.PROMOTE and engine in plan.new:
            return _waived(reader, plan)
    return frozenset()


def was_promoted_on_report(reader: RegistryReader, model: str) -> bool:
    """Whether an engine of this model was promoted on a report."""
    return any(rests_on_report(reader, plan) for plan in _in_service(reader, model))


def has_reports(reader: RegistryReader, model: str, artefacts: Collection[str]) -> bool:
    """Whether there is a report about one of these artefacts, or a promotion of this model that rested on one."""
    known = any(report.artefact in artefacts for report in reader.all(KnownReport))
    return known or was_promoted_on_report(reader, model)
