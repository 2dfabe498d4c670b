"""The runner of operations, one at a time for each model: commit, run the effect, feed its outcome back.

It runs an operation that an operator began, and one that a start found unfinished, in the same way. One task owns every
step of an operation; a signal (cancel, roll back) interrupts it. A step towards something new is on disk before its effect
begins. A step back to what the registry already names (`OperationState.runs_ahead`) takes effect at once, and is written
when the disk takes it.
"""

import asyncio
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple

from app.errors.tree import Refused
from app.promotion import repository
from app.promotion.repository import RegistryExecutor, now
from app.promotion.state_machine import (
    FINAL,
    Action,
    Effect,
    EffectError,
    EffectEvidence,
    FailureReason,
    OperationEvent,
    OperationPhase,
    OperationState,
    step,
)
from app.promotion.steps import HANDLERS, TIMEOUTS, Dependencies
from app.registry.errors import GenerationMoved, RegistryError
from app.registry.registry import Registry
from app.telemetry.log import Logger, where
from app.telemetry.metrics import Metrics
from deploy.core.tasks import report
from gates.decode.decoder import DecodeError, canonical

ACTOR: Final = "gateway"
"""The actor in the audit for the worker's steps."""
AHEAD_SECONDS: Final = 0.25
"""How long a step that need not be written first waits for the disk."""
UNWATCHED_SECONDS: Final = 10.0
"""How long an operation waits for the disk while its candidate has a share of the traffic and nothing watches it."""
DISK_SECONDS: Final = 2.0
"""The pause before a failed write is retried."""

Write = Callable[[Registry], object]


class Happening(NamedTuple):
    """An event of an operation, its reason, and the figures that it rests on."""

    event: OperationEvent
    fault: FailureReason | None = None
    evidence: EffectEvidence | None = None


async def write_after(before: asyncio.Task[None] | None, registry: RegistryExecutor, write: Write) -> None:
    """Write a step once the one before it is written, as soon as the disk takes it. Raises RegistryError of either."""
    if before is not None:
        await before
    while not await registry.write(write):
        await asyncio.sleep(DISK_SECONDS)


class RunningOperation:
    """An operation that has not ended, or whose end is not written; and the signal that was sent to it."""

    def __init__(self, state: OperationState, created: str) -> None:
        self.state, self.created, self.id = state, created, state.plan.operation
        self.entered = time.monotonic()  # when the present phase began
        self.signal: asyncio.Future[Happening] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        # Of the latest step that runs ahead, after those before it.
        self.writing: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether there are steps that the disk has not taken yet."""
        return self.writing is not None and not self.writing.done()

    def check_written(self) -> None:
        """Raises RegistryError: a step that runs ahead could not be written, for another reason than the disk."""
        if self.writing is not None and self.writing.done():
            written, self.writing = self.writing, None
            written.result()

    def send(self, event: OperationEvent, fault: FailureReason) -> None:
        """Interrupt the present effect with a signal that is legal now; the first one counts."""
        if self.state.takes(event) and not self.signal.done():
            self.signal.set_result(Happening(event, fault))

    def cancel(self, by: str) -> None:
        """Send an operator's cancel."""
        self.send(OperationEvent.CANCEL, FailureReason("cancelled", f"cancelled by {by}"))

    def enter(self, state: OperationState) -> None:
        """Be in another state; a signal that came too late is dropped."""
        self.state = state
        if self.signal.done() and not state.takes(self.signal.result().event):
            self.signal = asyncio.get_running_loop().create_future()


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
        await asyncio.gather(*tasks, return_exceptions=True)

    def reserve(self, state: OperationState, created: str) -> RunningOperation:
        """Keep other operations from the model, until this one has ended or is dismissed. Raises Refused (busy)."""
        plan = state.plan
        self.check_free(plan.model)
        self.running[plan.model] = running = RunningOperation(state, created)
        self._deps.plans[plan.model] = plan
        return running

    def check_free(self, model: str) -> None:
        """Raises Refused (busy): the model has an operation under way."""
        if other := self.running.get(model):
            raise Refused(
                f"{model} has an operation under way: {other.id}; wait for it, or cancel it", "busy"
            )

    def dismiss(self, running: RunningOperation) -> None:
        """Free its model for another operation."""
        del self.running[running.state.plan.model], self._deps.plans[running.state.plan.model]
        running.ended.set()
        self._notify()

    def run(self, running: RunningOperation, event: OperationEvent, unwritten: Write | None = None) -> None:
        """Carry out an operation that was reserved; it need not be in the registry if `unwritten` brings it there."""
        if unwritten is not None:
            self._write_later(running, unwritten)
        running.task = asyncio.create_task(self._run_isolated(running, event), name=running.id)
        self._notify()

    def find(self, operation: str) -> RunningOperation | None:
        """The running operation with this id."""
        return next((running for running in self.running.values() if running.id == operation), None)

    def _notify(self) -> None:
        """Wake the waiters for `changed`."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def _run_isolated(self, running: RunningOperation, event: OperationEvent) -> None:
        """Run one operation; its failures do not affect another."""
        try:
            await self._advance(running, Happening(event))
            while (effect := running.state.effect) is not None:
                await self._advance(running, await self._run_effect(running, effect))
            if running.writing is not None:
                await running.writing
            await self._deps.remember()
        except Exception as error:
            self._log.error("operation_lost", operation=running.id, **where(error))
            report("promotions", error)
        finally:
            if running.writing is not None:
                await _cancelled(running.writing)
            self._deps.memory.lease.release(running.id)  # also if it is stuck
            self.dismiss(running)

    async def _advance(self, running: RunningOperation, happening: Happening) -> None:
        """Take the step that an event leads to; or that of a signal which came before the disk took the former."""
        (event, fault, evidence), before, at = happening, running.state, now()
        after = step(before, event, fault)

        def write(registry: Registry) -> None:
            repository.commit(registry, before, event, after, fault, evidence, at=at, actor=ACTOR)

        signal: Happening | None = None
        try:
            if not after.state.runs_ahead:
                signal = await self._write_first(running, write)
            else:
                seconds = 0.0 if running.is_behind else AHEAD_SECONDS
                await asyncio.wait({self._write_later(running, write)}, timeout=seconds)
                running.check_written()
        except GenerationMoved as error:
            signal = Happening(OperationEvent.FAILED, FailureReason("generation_moved", str(error)))
        if signal is not None:
            return await self._advance(running, signal)
        running.enter(after.state)
        self._stepped(running, before.phase)

    def _write_later(self, running: RunningOperation, write: Write) -> asyncio.Task[None]:
        writing = write_after(running.writing, self._deps.registry, write)
        running.writing = asyncio.create_task(writing, name="step")
        return running.writing

    async def _write_first(self, running: RunningOperation, write: Write) -> Happening | None:
        """Write a step after all before it. Returns the signal that came before the disk took it; then it is not written."""
        is_watched = running.state.phase is not OperationPhase.SHIFTING
        until = time.monotonic() + (inf if is_watched else UNWATCHED_SECONDS)
        while True:
            if running.writing is not None:
                await _first(running.writing, running.signal, seconds=DISK_SECONDS)
            running.check_written()
            if running.writing is None and await self._deps.registry.write(write):
                return None
            if running.signal.done():
                return running.signal.result()
            if time.monotonic() > until:
                why = "the registry cannot be written, and nothing watches the candidate meanwhile"
                return Happening(OperationEvent.BREACHED, FailureReason("state_unavailable", why))
            await _first(running.signal, seconds=DISK_SECONDS)

    def _stepped(self, running: RunningOperation, before: OperationPhase) -> None:
        """Count and log a step."""
        state, effect = running.state, running.state.effect
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
            effect=str(effect.action) if effect else None,
            code=state.fault.code if state.fault else None,  # its message may quote an engine
        )
        self._notify()

    async def _run_effect(self, running: RunningOperation, effect: Effect) -> Happening:
        """Run an effect to its outcome, or until a signal interrupts it."""
        handling = asyncio.create_task(self._handle(running.state, effect), name=effect.key)
        try:
            await _first(handling, running.signal)
            if effect.action is Action.STOP:
                await asyncio.wait([handling])  # a stop is not interrupted half-way
            return running.signal.result() if running.signal.done() else handling.result()
        finally:
            await _cancelled(handling)

    async def _handle(self, state: OperationState, effect: Effect) -> Happening:
        """Run a handler; foreign errors are translated here."""
        seconds = TIMEOUTS.get(effect.action)
        began, event = time.monotonic(), OperationEvent.FAILED
        try:
            async with asyncio.timeout(seconds):
                found = await HANDLERS[effect.action](self._deps, state.plan, effect)
            evidence = {"seconds": round(time.monotonic() - began, 3), **found}
            canonical(evidence)
            return Happening(OperationEvent.DONE, None, evidence)
        except EffectError as error:
            fault = error.fault
            event = error.event if state.takes(error.event) else event
        except DecodeError as error:  # no audit can hold it
            fault = FailureReason("evidence_unreadable", str(error))
        except TimeoutError:
            fault = FailureReason("timeout", f"{effect.action} was not done within {seconds or inf:g} s")
        except RegistryError as error:
            fault = FailureReason("registry_failed", str(error))
        except Exception as error:
            self._log.error("internal_error", operation=state.plan.operation, **where(error))
            why = f"{effect.action}: {type(error).__name__}; the gateway's log says where"
            fault = FailureReason("internal_error", why)
        return Happening(event, fault)


async def _first(*either: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until one of these is done, at most so long."""
    await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task unless it is over, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])
