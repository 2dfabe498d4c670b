"""Operations in the registry, and the executor that runs all work on the registry in one thread.

Each step of the state machine is one transaction with its aliases and its audit event. When `commit` returns, the state
is durable, and its effect may be run. The stored state is read back strictly.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

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

FILE = "registry.db"  # in the state folder
STATE_SECONDS = 10.0  # timeout of an operator's request to the registry


def now() -> str:
    """The present time as the registry stores it."""
    return timestamp(datetime.now(UTC))


class RegistryExecutor:
    """Runs work on the registry in a thread of its own, one call at a time in their order: SQLite waits for the disk.

    A caller that stops waiting does not undo what it asked for. Failures are counted, and logged when their code changes.
    """

    def __init__(self, state_dir: Path, metrics: Metrics, log: Logger) -> None:
        self._metrics, self._log = metrics, log
        self._fault: str | None = None  # the code of the disk's last failure, while it lasts
        self._path = state_dir / FILE
        self._thread = ThreadPoolExecutor(1, "registry")
        self._registry: Registry | None = None

    async def open(self) -> None:
        """Raises RegistryError: another gateway has it, or it is no registry; says which file."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._registry = await self._in_thread(lambda: Registry(self._path))

    async def run(self, work: Callable[[Registry], T]) -> T:
        """The result of `work`, or its error. Raises StorageFailed."""
        registry = self._registry
        assert registry is not None  # opened before, and closed after, all requests
        return await self._in_thread(lambda: work(registry.checked()))

    async def do(self, work: Callable[[Registry], T], seconds: float | None = None) -> T:
        """The result of `work`, for an operator who waits. Raises StorageFailed."""
        return await self.answer(self.run(work), seconds)

    async def answer(self, pending: Awaitable[T], seconds: float | None = None) -> T:
        """The result of what waits for the registry, within a timeout; it goes on then. Raises StorageFailed."""
        task, seconds = asyncio.ensure_future(pending), seconds or STATE_SECONDS
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # marked as retrieved
        with self.reporting_state():
            await asyncio.wait({task}, timeout=seconds)
            if not task.done():
                raise StorageFailed(f"the registry did not answer within {seconds:g} s; see its disk")
            return task.result()

    async def write(self, work: Callable[[Registry], object]) -> bool:
        """Whether the disk took a change; a failed one can be tried again. Raises RegistryError."""
        try:
            with self.reporting_state():
                await self.run(work)
        except StorageFailed:
            return False
        return True

    async def close(self) -> None:
        """Idempotent."""
        registry, self._registry = self._registry, None
        if registry is not None:
            await self._in_thread(registry.close)
        self._thread.shutdown(wait=False)

    @contextmanager
    def reporting_state(self) -> Iterator[None]:
        """Report a failure of the state folder, or that it can be written."""
        try:
            yield
        except StorageFailed as error:
            self._metrics.count("manners_state_failures_total", error.code)
            self._metrics.gauge("manners_state_available", 0)
            if self._fault != error.code:
                self._log.error("registry_failed", code=error.code, error=str(error))
            self._fault = error.code
            raise
        if self._registry is not None and self._registry.takes_writes:  # a read-only disk can be read
            self._metrics.gauge("manners_state_available", 1)
            if self._fault is not None:
                self._log.warning("registry_works_again", code=self._fault)
            self._fault = None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def begin(registry: Registry, plan: OperationPlan, *, at: str, actor: str, **asked: str | None) -> None:
    """Add a queued operation; `asked` are the row's `key` and `request`. Raises Conflict: nothing was written."""
    state = OperationState(plan)
    row = {"id": plan.operation, "kind": plan.kind, "model": plan.model, "created": at, **_stored(state)}
    entry = _entry(state, at, actor, {"plan": encode(plan)})
    registry.add(OperationRow(**(row | asked)), entry)


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
    """Write what an event led to; `evidence` are the numbers that an effect's outcome rests on. Raises Conflict, and
    GenerationMoved: `live` is not where the plan found it, so the state before is to be fed the failure."""
    state, following, reason = after.state, after.state.effect, fault or after.state.fault
    outcomes = (OperationEvent.DONE, OperationEvent.FAILED, OperationEvent.REFUSED)
    ended = before.effect if event in outcomes else None
    detail: dict[str, object] = {
        "event": str(event),
        "effect": ended and ended.key,
        "next": following and following.key,
        "weight": following and following.weight,
        "move": after.change and encode(after.change),
        "fault": reason and encode(reason),
        "evidence": evidence,
    }
    entry = _entry(state, at, actor, {name: value for name, value in detail.items() if value})
    registry.change(OperationRow, entry, after.change, **_stored(state))


def _stored(state: OperationState) -> dict[str, Any]:
    """The columns of an operation that change with its state."""
    return {"phase": state.phase, "state": canonical(encode(state)).decode(), "done": state.is_done}


def _entry(state: OperationState, at: str, actor: str, detail: Mapping[str, object]) -> AuditEntry:
    plan, verb = state.plan, f"{state.plan.kind}.{state.phase}"
    return AuditEntry(
        at=at, actor=actor, verb=verb, subject=plan.model, operation=plan.operation, detail=detail
    )


def state_of(operation: OperationRow) -> OperationState:
    """The stored state of an operation. Raises DecodeError: it was written by another program."""
    stored = json.loads(operation.state)
    stored["plan"].pop("max_unavailable", None)  # 0.3.0 replaced replicas one after the other
    if stored["phase"] == "rolling":
        stored |= {"phase": "switching", "at": 0}
    state: OperationState = read(OperationState, stored, f"operation {operation.id}")
    return state


def _in_service(reader: RegistryReader, model: str | None = None) -> Iterator[OperationPlan]:
    """The promotions that put their candidate in service and have not taken it out, the latest first."""
    for row in reversed(reader.all(OperationRow, kind=OperationKind.PROMOTE)):
        plan, live = state_of(row).plan, reader.alias(row.model, "live")
        under_way = not row.done and live is not None and live.engine == plan.candidate
        if model in (None, row.model) and (row.phase == OperationPhase.SUCCEEDED or under_way):
            yield plan


def gated(reader: RegistryReader, roots: Mapping[str, str | None]) -> frozenset[str]:
    """The engines, by digest, that a promotion put in service on a report that passed without an override. `roots` are those
    of the engines' weights as they are now, which must be the report's."""
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
    report = plan.report or "override:"  # so earlier programs named an override that stood in for a report
    return plan.kind is OperationKind.PROMOTE and not (
        report.startswith("override:") or _waived(reader, plan)
    )


def _waived(reader: RegistryReader, plan: OperationPlan) -> frozenset[str]:
    """The refusals that overrides waived for a promotion."""
    steps = (json.loads(event.detail) for event in reader.events(operation=plan.operation))
    return frozenset(code for step in steps for code in step.get("evidence", {}).get("waived", ()))


def waived_for(reader: RegistryReader, model: str, engine: str) -> frozenset[str]:
    """The refusals that overrides waived when this engine was last put in service for the model."""
    plans = (plan for plan in _in_service(reader, model) if engine in plan.new)
    return next((_waived(reader, plan) for plan in plans), frozenset())


def was_promoted_on_report(reader: RegistryReader, model: str) -> bool:
    """Whether an engine of this model was promoted on a report."""
    return any(rests_on_report(reader, plan) for plan in _in_service(reader, model))


def has_reports(reader: RegistryReader, model: str, artefacts: Collection[str | None]) -> bool:
    """Whether there is a report about one of these artefacts, or a promotion of this model that rested on one."""
    known = any(report.artefact in artefacts for report in reader.all(KnownReport))
    return known or was_promoted_on_report(reader, model)
