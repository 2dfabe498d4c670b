"""The worker that carries out operations, one at a time for each model: commit, run the effect, feed its outcome back.

One task owns every step of an operation; a signal (cancel, roll back) interrupts it. A step towards something new is on
disk before its effect begins. A step back to what the registry already names (`OperationState.runs_ahead`) takes effect
at once, and is written when the disk takes it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final

from app.promotion import repository
from app.promotion.repository import RegistryExecutor, now
from app.promotion.state_machine import (
    CHECKS,
    FINAL,
    HALF_WAY,
    TABLE,
    Action,
    Begin,
    Breached,
    BreachError,
    Cancel,
    Effect,
    EffectDone,
    EffectEnding,
    EffectEvidence,
    EffectFailed,
    EffectRefused,
    FailureReason,
    OperationEvent,
    OperationState,
    RefusalError,
    Restart,
    Transition,
    step,
)
from app.promotion.steps import HANDLERS, TIMEOUTS, Dependencies
from app.registry.errors import GenerationMoved, OperationUnderWay, RegistryError, StorageFailed
from app.registry.registry import Registry
from app.telemetry.log import Logger, where
from app.telemetry.metrics import Metrics
from deploy.core.tasks import report
from gates.decode.decoder import DecodeError, canonical

ACTOR: Final = "gateway"
"""The actor in the audit for the worker's steps."""
AHEAD_SECONDS: Final = 0.25
"""How long a step that need not be written first waits for the disk."""
HALF_WAY_SECONDS: Final = 10.0
"""How long an operation waits for the disk while its candidate serves and nothing watches it."""

DISK_SECONDS: Final = 2.0
"""The pause before a failed write is retried."""

Signal = Cancel | Breached
Write = Callable[[Registry], object]


class StepWriter:
    """Writes the steps of one operation in their order: `add` one to be written later, or `try_now`.

    A failure of the disk is reported, and the step is tried again. Any other failure is raised by whoever waits.
    """

    def __init__(self, registry: RegistryExecutor) -> None:
        self._registry = registry
        self._waiting: deque[Write] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether there are steps that the disk has not taken yet."""
        return bool(self._waiting)

    def add(self, write: Write) -> None:
        """Begin to write a step, after those that were added before."""
        self._waiting.append(write)
        if self._task is None or (self._task.done() and self._task.exception() is None):
            self._task = asyncio.create_task(self._write(), name="steps")

    async def written(self, *wakers: asyncio.Future[Any], timeout: float | None = None) -> bool:
        """Whether all steps are written, after at most so long, or when one of `wakers` is done. Raises RegistryError."""
        if self._task is None:
            return True
        await asyncio.wait({self._task, *wakers}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not self._task.done():
            return False
        task, self._task = self._task, None
        task.result()
        return True

    async def try_now(self, write: Write, waker: asyncio.Future[Any]) -> bool:
        """Write a step after those that were added. False: it is not written, since the disk failed or `waker` is done. Raises RegistryError."""
        return await self.written(waker, timeout=DISK_SECONDS) and await self._try(write)

    async def stop(self) -> None:
        """Drop the steps that are not written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write(self) -> None:
        while self._waiting:
            try:
                is_written = await self._try(self._waiting[0])
            except RegistryError:
                self._waiting.popleft()
                raise
            if is_written:
                self._waiting.popleft()
            else:
                await asyncio.sleep(DISK_SECONDS)

    async def _try(self, write: Write) -> bool:
        try:
            await self._registry.run(write)
        except StorageFailed as error:
            self._registry.failed(error)
            return False
        self._registry.works()
        return True


class RunningOperation:
    """An operation that has not ended, or whose end is not written; and the signal that was sent to it."""

    def __init__(self, state: OperationState, created: str, writer: StepWriter) -> None:
        self.state = state
        self.created = created
        self.writer = writer
        self.entered = time.monotonic()  # when the present phase began
        self.signal: asyncio.Future[Signal] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The operation's."""
        return self.state.plan.operation

    def accepts(self, signal: type[Signal]) -> bool:
        """Whether such a signal is legal in the present state."""
        return (self.state.phase, signal) in TABLE

    def send(self, signal: Signal) -> None:
        """Interrupt the present effect with a signal; the first one counts."""
        if not self.signal.done():
            self.signal.set_result(signal)

    def received(self) -> Signal | None:
        """The signal, if it is legal now; a signal that came too late is dropped."""
        if not self.signal.done():
            return None
        signal = self.signal.result()
        if self.accepts(type(signal)):
            return signal
        self.signal = asyncio.get_running_loop().create_future()
        return None


class PromotionWorker:
    """Runs operations, those of different models independently of one another. `stop` leaves them as they are."""

    def __init__(self, deps: Dependencies, metrics: Metrics, log: Logger) -> None:
        self._deps = deps
        self._metrics = metrics
        metrics.begin("manners_promotions_total", *((phase,) for phase in FINAL))
        self._log = log
        self.running: dict[str, RunningOperation] = {}  # by model
        self.changed = asyncio.Event()  # set, and replaced, with every step

    async def stop(self) -> None:
        """Stop; the running operations are recovered at the next start."""
        tasks = [running.task for running in self.running.values() if running.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def reserve(self, state: OperationState, created: str) -> RunningOperation:
        """Keep other operations from the model, until this one has ended or is dismissed. Raises OperationUnderWay."""
        plan = state.plan
        if other := self.running.get(plan.model):
            raise OperationUnderWay(plan.model, other.id)
        writer = StepWriter(self._deps.registry)
        self.running[plan.model] = running = RunningOperation(state, created, writer)
        self._deps.plans[plan.model] = plan
        return running

    def dismiss(self, running: RunningOperation) -> None:
        """Free its model for another operation."""
        del self.running[running.state.plan.model], self._deps.plans[running.state.plan.model]
        running.ended.set()
        self.notify()

    def run(self, running: RunningOperation, event: Begin | Restart, *unwritten: Write) -> None:
        """Carry out an operation that was reserved; it need not be in the registry if `unwritten` brings it there."""
        for write in unwritten:
            running.writer.add(write)
        running.task = asyncio.create_task(self._run_isolated(running, event), name=running.id)
        self.notify()

    def find(self, operation: str) -> RunningOperation | None:
        """The running operation with this id."""
        return next((running for running in self.running.values() if running.id == operation), None)

    def notify(self) -> None:
        """Wake the waiters for `changed`."""
        self.changed.set()
        self.changed = asyncio.Event()

    # ---------------------------------------------------------------------------------- operations

    async def _run_isolated(self, running: RunningOperation, event: Begin | Restart) -> None:
        """Run one operation; its failures do not affect another."""
        try:
            await self._run(running, event)
            await running.writer.written()
            await self._deps.remember()
        except Exception as error:
            self._log.error("operation_lost", operation=running.id, **where(error))
            report("promotions", error)
        finally:
            await running.writer.stop()
            self._deps.memory.lease.release(running.id)  # also if it is stuck
            self.dismiss(running)

    async def _run(self, running: RunningOperation, event: OperationEvent) -> None:
        present = await self._feed(running, event, {})
        while present.effect is not None:
            event, evidence = await self._run_effect(running, present.effect)
            present = await self._feed(running, event, evidence)

    async def _feed(
        self, running: RunningOperation, event: OperationEvent, evidence: EffectEvidence
    ) -> Transition:
        """The transition for an event, recorded; or that for a signal which came before the disk took it."""
        after = step(running.state, event)
        try:
            signal = await self._record(running, after, event, evidence)
        except GenerationMoved as error:
            assert running.state.effect is not None
            fault = FailureReason("generation_moved", str(error))
            return await self._feed(running, EffectFailed(running.state.effect.key, fault), {})
        if signal is not None:
            return await self._feed(running, signal, {})
        self._stepped(running, after)
        return after

    async def _record(
        self, running: RunningOperation, after: Transition, event: OperationEvent, evidence: EffectEvidence
    ) -> Signal | None:
        """Write a step, before its effect or, if it runs ahead, beside it. Returns a signal that came before the disk took it."""
        at, writer = now(), running.writer

        def write(registry: Registry) -> None:
            repository.commit(registry, after, event, at=at, actor=ACTOR, evidence=evidence)

        if after.state.runs_ahead:
            behind = writer.is_behind
            writer.add(write)
            if not behind:
                await writer.written(timeout=AHEAD_SECONDS)
            return None
        until = time.monotonic() + (HALF_WAY_SECONDS if running.state.phase in HALF_WAY else inf)
        while not await writer.try_now(write, running.signal):
            if signal := running.received():
                return signal
            if time.monotonic() > until:
                why = "the registry cannot be written, and nothing watches the candidate meanwhile"
                return Breached(FailureReason("state_unavailable", why))
            await asyncio.wait({running.signal}, timeout=DISK_SECONDS)
        return None

    def _stepped(self, running: RunningOperation, after: Transition) -> None:
        """Count and log a step."""
        before, state = running.state.phase, after.state
        running.state = state
        if before != state.phase:
            spent = time.monotonic() - running.entered
            self._metrics.child("manners_promotion_phase_seconds", before).observe(spent)
            running.entered = time.monotonic()
        if state.is_done:
            self._metrics.count("manners_promotions_total", state.phase)
        self._log.info(
            "promotion",
            operation=running.id,
            model=state.plan.model,
            engine=self._deps.catalogue.name(state.plan.candidate),
            phase=str(state.phase),
            effect=str(after.effect.action) if after.effect else None,
            code=state.fault.code if state.fault else None,  # its message may quote an engine
        )
        self.notify()

    # ------------------------------------------------------------------------------------- effects

    async def _run_effect(
        self, running: RunningOperation, effect: Effect
    ) -> tuple[OperationEvent, EffectEvidence]:
        """Run an effect to its outcome, or until a legal signal interrupts it."""
        handling = asyncio.create_task(self._handle(running.state, effect), name=effect.key)
        try:
            while True:
                either: set[asyncio.Future[Any]] = {handling, running.signal}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not running.signal.done():
                    return self._outcome(running.state, effect, handling)
                if signal := running.received():
                    if effect.action is Action.STOP:
                        await asyncio.wait([handling])  # a stop is not interrupted half-way
                    return signal, {}
        finally:
            await _cancelled(handling)

    async def _handle(self, state: OperationState, effect: Effect) -> EffectEvidence:
        began = time.monotonic()
        async with asyncio.timeout(TIMEOUTS.get(effect.action)):
            evidence = await HANDLERS[effect.action](self._deps, state.plan, effect)
        evidence = {"seconds": round(time.monotonic() - began, 3), **evidence}
        canonical(evidence)  # raises DecodeError: no audit can hold it
        return evidence

    def _outcome(
        self, state: OperationState, effect: Effect, handling: asyncio.Task[EffectEvidence]
    ) -> tuple[OperationEvent, EffectEvidence]:
        """The event for a handler's outcome; foreign errors are translated here."""
        error = handling.exception()
        match error:
            case None:
                return EffectDone(effect.key), handling.result()
            case DecodeError():
                fault = FailureReason("evidence_unreadable", str(error))
            case RefusalError() if effect.action in CHECKS:
                return EffectRefused(effect.key, error.fault), {}
            case BreachError() if (state.phase, Breached) in TABLE:
                return Breached(error.fault), {}
            case EffectEnding():
                fault = error.fault
            case TimeoutError():
                message = f"{effect.action} was not done within {TIMEOUTS[effect.action]:g} s"
                fault = FailureReason("timeout", message)
            case RegistryError():
                fault = FailureReason("registry_failed", str(error))
            case _:
                self._log.error("internal_error", operation=state.plan.operation, **where(error))
                message = f"{effect.action}: {type(error).__name__}; the gateway's log says where"
                fault = FailureReason("internal_error", message)
        return EffectFailed(effect.key, fault), {}


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task unless it is over, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])
