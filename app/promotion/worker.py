"""The worker that carries out operations, one at a time: commit, run the effect, feed its outcome back.

One task owns every step. Others reach it through its queue of operations, and by a signal (cancel, roll
back) to the running operation. A step is on disk before its effect begins; wherever the gateway is
killed, the next start knows what may have been begun.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

from app.promotion import repository
from app.promotion.repository import now
from app.promotion.state_machine import (
    FINAL,
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
    recover,
    step,
)
from app.promotion.steps import HANDLERS, TIMEOUTS, Dependencies
from app.registry.errors import GenerationMoved, RegistryError, StorageFailed
from app.registry.registry import Registry
from app.telemetry.log import Logger, where
from app.telemetry.metrics import Metrics
from deploy.core.tasks import report, supervise
from gates.report.codec import CodecError

ACTOR: Final = "gateway"
"""The actor in the audit for the worker's steps."""
DISK_SECONDS: Final = 2.0
"""The pause before a failed write of a step is retried."""

Signal = Cancel | Breached
T = TypeVar("T")


class RunningOperation:
    """The running operation, and the signal that was sent to it."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.state: OperationState | None = None
        self.signal: asyncio.Future[Signal] = asyncio.get_running_loop().create_future()

    def accepts(self, signal: type[Signal]) -> bool:
        """Whether such a signal is legal in the present state."""
        return self.state is None or (self.state.phase, signal) in TABLE

    def send(self, signal: Signal) -> None:
        """Interrupt the present effect with a signal; the first one counts."""
        if not self.signal.done():
            self.signal.set_result(signal)


class PromotionWorker:
    """Runs operations. `start` it with the unfinished ones; `stop` leaves the present one as it is."""

    def __init__(self, deps: Dependencies, metrics: Metrics, log: Logger) -> None:
        self._deps = deps
        self._metrics = metrics
        metrics.promotions_end(FINAL)
        self._log = log
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._entered = time.monotonic()  # when the present phase began
        self.running: RunningOperation | None = None
        self.changed = asyncio.Event()  # set, and replaced, with every step

    def start(self, unfinished: Collection[OperationState]) -> None:
        """Recover the interrupted operations, and then run the queue."""
        # Those before their switch come first: they only restore who served. The others watch for minutes.
        found = sorted(unfinished, key=lambda state: step(state, Restart()).state.outcome is None)
        self._task = supervise(partial(self._work, deque(found)), "promotions")

    async def stop(self) -> None:
        """Stop; the running operation is recovered at the next start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def enqueue(self, operation: str) -> None:
        """Queue an operation that the registry holds."""
        self._queue.put_nowait(operation)
        self.notify()

    def notify(self) -> None:
        """Wake the waiters for `changed`."""
        self.changed.set()
        self.changed = asyncio.Event()

    # ---------------------------------------------------------------------------------- operations

    async def _work(self, unfinished: deque[OperationState]) -> None:
        while unfinished:
            state = unfinished.popleft()
            await self._run_isolated(state.plan.operation, state)
        while True:
            await self._run_isolated(await self._queue.get(), None)

    async def _run_isolated(self, operation: str, interrupted: OperationState | None) -> None:
        """Run one operation; its failures do not affect the next."""
        self.running = RunningOperation(operation)
        self._entered = time.monotonic()
        task = asyncio.create_task(self._run(operation, interrupted), name=operation)
        try:
            await asyncio.wait([task])
        finally:
            await _cancelled(task)
            self._deps.memory.lease.release(operation)  # also if it is stuck
            self.running = None
        if error := task.exception():
            self._log.error("operation_lost", operation=operation, **where(error))
            report("promotions", error)

    async def _run(self, operation: str, interrupted: OperationState | None) -> None:
        if interrupted is None:
            begun = await self._persist(lambda registry: _begin(registry, operation))
            if begun is None:
                return  # it was cancelled in the queue
            self._committed(begun)
            present: Transition = begun
        else:
            present = await self._feed(interrupted, Restart(), {})
        while present.effect is not None:
            event, evidence = await self._run_effect(present.state, present.effect)
            present = await self._feed(present.state, event, evidence)

    async def _feed(
        self, state: OperationState, event: OperationEvent, evidence: EffectEvidence
    ) -> Transition:
        """The transition for an event, committed."""
        after = recover(state) if isinstance(event, Restart) else step(state, event)
        try:
            await self._commit(after, event, evidence)
        except (GenerationMoved, CodecError) as error:
            assert state.effect is not None
            code = "generation_moved" if isinstance(error, GenerationMoved) else "evidence_unreadable"
            event = EffectFailed(state.effect.key, FailureReason(code, str(error)))
            after = step(state, event)
            await self._commit(after, event, {})
        self._committed(after)
        return after

    async def _commit(self, after: Transition, event: OperationEvent, evidence: EffectEvidence) -> None:
        await self._persist(
            lambda registry: repository.commit(
                registry, after, event, at=now(), actor=ACTOR, evidence=evidence
            )
        )

    async def _persist(self, work: Callable[[Registry], T]) -> T:
        """The result of `work`, retried until the disk accepts it. Every failure is counted, changes are logged."""
        logged: str | None = None
        while True:
            try:
                result = await self._deps.registry.run(work)
            except StorageFailed as error:
                self._metrics.state_failed(error.code)
                if logged != error.code:
                    self._log.error("registry_failed", code=error.code, error=str(error))
                logged = error.code
                await asyncio.sleep(DISK_SECONDS)
                continue
            self._metrics.state_works()
            if logged is not None:
                self._log.warning("registry_works_again", code=logged)
            return result

    def _committed(self, after: Transition) -> None:
        """Count and log a step that is on the disk."""
        state, running = after.state, self.running
        assert running is not None
        before = running.state.phase if running.state else None
        running.state = state
        if before is not None and before != state.phase:
            self._metrics.phase(before, time.monotonic() - self._entered)
            self._entered = time.monotonic()
        if state.is_done:
            self._metrics.promoted(state.phase)
        self._log.info(
            "promotion",
            operation=state.plan.operation,
            model=state.plan.model,
            engine=self._deps.catalogue.name(state.plan.candidate),
            phase=str(state.phase),
            effect=str(after.effect.action) if after.effect else None,
            # Without the message, which may quote an engine's output. /admin/operations has it.
            code=state.fault.code if state.fault else None,
        )
        self.notify()

    # ------------------------------------------------------------------------------------- effects

    async def _run_effect(
        self, state: OperationState, effect: Effect
    ) -> tuple[OperationEvent, EffectEvidence]:
        """Run an effect to its outcome, or until a legal signal interrupts it."""
        running = self.running
        assert running is not None
        handling = asyncio.create_task(self._handle(state, effect), name=effect.key)
        try:
            while True:
                either: set[asyncio.Future[Any]] = {handling, running.signal}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not running.signal.done():
                    return self._outcome(state, effect, handling)
                signal = running.signal.result()
                if (state.phase, type(signal)) in TABLE:
                    return signal, {}
                running.signal = asyncio.get_running_loop().create_future()  # it came too late
        finally:
            await _cancelled(handling)

    async def _handle(self, state: OperationState, effect: Effect) -> EffectEvidence:
        async with asyncio.timeout(TIMEOUTS.get(effect.action)):
            return await HANDLERS[effect.action](self._deps, state.plan, effect)

    def _outcome(
        self, state: OperationState, effect: Effect, handling: asyncio.Task[EffectEvidence]
    ) -> tuple[OperationEvent, EffectEvidence]:
        """The event for a handler's outcome; foreign errors are translated here."""
        error = handling.exception()
        match error:
            case None:
                return EffectDone(effect.key), handling.result()
            case RefusalError() if effect.action in (Action.CHECK, Action.IDENTIFY):
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


def _begin(registry: Registry, operation: str) -> Transition | None:
    """Begin a queued operation; None if it was cancelled in the queue."""
    state = repository.load(registry, operation)
    if state.is_done:
        return None
    begun = step(state, Begin())
    repository.commit(registry, begun, Begin(), at=now(), actor=ACTOR)
    return begun


def cancel_queued(registry: Registry, operation: str, by: str) -> bool:
    """Cancel an operation that has not begun; False: it has. Raises UnknownRow."""
    state = repository.load(registry, operation)
    if state.effect is not None or state.is_done:
        return False
    event = Cancel(by)
    repository.commit(registry, step(state, event), event, at=now(), actor=by)
    return True
