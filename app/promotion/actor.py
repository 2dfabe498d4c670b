"""The actor that carries operations out, one at a time: commit, effect, outcome.

One task owns every step. Whoever wants something puts it down where the task finds it: an operation
in its queue, a word (cancel, turn back) on the operation that runs. A step is on the disk before its
effect begins; whatever the gateway is killed between, the next start finds what may have been begun.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

from app.promotion import book
from app.promotion.deeds import DEEDS, SECONDS
from app.promotion.effects import Effect, Verb
from app.promotion.machine import TABLE, Machine, Step, recover, step
from app.promotion.outcome import Breach, EffectFailed, EffectRefused
from app.promotion.phases import FINAL, Begin, Breached, Cancel, Done, Event, Failed, Fault, Refused, Restart
from app.promotion.site import Evidence, Site
from app.promotion.wishes import now
from app.registry.errors import GenerationMoved, RegistryError, StorageFailed
from app.registry.registry import Registry
from app.telemetry.log import Logger, where
from app.telemetry.metrics import Metrics
from deploy.core.tasks import supervise

ACTOR: Final = "gateway"
DISK_SECONDS: Final = 2.0
"""How long to wait before a step that the disk did not take is written again."""

Word = Cancel | Breached
T = TypeVar("T")


class Turn:
    """The operation that runs now, and what was said to it."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.machine: Machine | None = None
        self.word: asyncio.Future[Word] = asyncio.get_running_loop().create_future()

    def hears(self, word: type[Word]) -> bool:
        """Whether such a word would lead anywhere as it stands."""
        return self.machine is None or (self.machine.phase, word) in TABLE

    def say(self, word: Word) -> None:
        """It hears it before its next step; the first word counts."""
        if not self.word.done():
            self.word.set_result(word)


class Actor:
    """Runs operations. `start` it with those that were found unfinished; `stop` leaves them as they are."""

    def __init__(self, site: Site, metrics: Metrics, log: Logger) -> None:
        self._site = site
        self._metrics = metrics
        metrics.promotions_end(FINAL)
        self._log = log
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._entered = time.monotonic()  # the present phase
        self.turn: Turn | None = None
        self.news = asyncio.Event()  # set, and another put in its place, with every step

    def start(self, unfinished: Collection[Machine]) -> None:
        """Take up what was interrupted, and then what comes."""
        # Those after their switch are watched for minutes; the others only bring back who served.
        found = sorted(unfinished, key=lambda machine: step(machine, Restart()).machine.outcome is None)
        self._task = supervise(partial(self._work, deque(found)), "promotions")

    async def stop(self) -> None:
        """Let go of what runs; it is taken up at the next start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def put(self, operation: str) -> None:
        """Queue an operation that the registry holds."""
        self._queue.put_nowait(operation)
        self.tell()

    def tell(self) -> None:
        """Wake who waits for news."""
        self.news.set()
        self.news = asyncio.Event()

    # -------------------------------------------------------------------------- one after the other

    async def _work(self, unfinished: deque[Machine]) -> None:
        while unfinished:
            machine = unfinished.popleft()
            await self._guarded(machine.plan.operation, machine)
        while True:
            await self._guarded(await self._queue.get(), None)

    async def _guarded(self, operation: str, interrupted: Machine | None) -> None:
        """Nothing that one operation runs into keeps the next from its turn."""
        self.turn = Turn(operation)
        self._entered = time.monotonic()
        task = asyncio.create_task(self._carry_out(operation, interrupted), name=operation)
        try:
            await asyncio.wait([task])
        finally:
            await _ended(task)
            self._site.room.lease.release(operation)  # also of one that is stuck
            self.turn = None
        if error := task.exception():
            self._log.error("operation_lost", operation=operation, **where(error))

    async def _carry_out(self, operation: str, interrupted: Machine | None) -> None:
        if interrupted is None:
            begun = await self._persisted(lambda registry: _take(registry, operation))
            if begun is None:
                return  # it was cancelled in the queue
            self._took(begun)
            present: Step = begun
        else:
            present = await self._feed(interrupted, Restart(), {})
        while present.effect is not None:
            event, evidence = await self._attempt(present.machine, present.effect)
            present = await self._feed(present.machine, event, evidence)

    async def _feed(self, machine: Machine, event: Event, evidence: Evidence) -> Step:
        """The step after an event, on the disk."""
        after = recover(machine) if isinstance(event, Restart) else step(machine, event)
        try:
            await self._commit(after, event, evidence)
        except GenerationMoved as moved:
            assert machine.effect is not None
            event = Failed(machine.effect.key, Fault("generation_moved", str(moved)))
            after = step(machine, event)
            await self._commit(after, event, {})
        self._took(after)
        return after

    async def _commit(self, after: Step, event: Event, evidence: Evidence) -> None:
        await self._persisted(
            lambda registry: book.commit(registry, after, event, at=now(), actor=ACTOR, evidence=evidence)
        )

    async def _persisted(self, work: Callable[[Registry], T]) -> T:
        """What `work` gives, tried until the disk takes it. Each failure is counted; the log tells of changes."""
        told: str | None = None
        while True:
            try:
                given = await self._site.archive.do(work)
            except StorageFailed as error:
                self._metrics.state_failed(error.code)
                if told != error.code:
                    self._log.error("registry_failed", code=error.code, error=str(error))
                told = error.code
                await asyncio.sleep(DISK_SECONDS)
                continue
            self._metrics.state_works()
            if told is not None:
                self._log.warning("registry_works_again", code=told)
            return given

    def _took(self, after: Step) -> None:
        """A step is on the disk: count it, say it."""
        machine, turn = after.machine, self.turn
        assert turn is not None
        before = turn.machine.phase if turn.machine else None
        turn.machine = machine
        if before is not None and before != machine.phase:
            self._metrics.phase(before, time.monotonic() - self._entered)
            self._entered = time.monotonic()
        if machine.is_done:
            self._metrics.promoted(machine.phase)
        self._log.info(
            "promotion",
            operation=machine.plan.operation,
            model=machine.plan.model,
            engine=self._site.shelf.name(machine.plan.candidate),
            phase=str(machine.phase),
            effect=str(after.effect.verb) if after.effect else None,
            # Not its message: that may be in an engine's own words. /admin/operations has it.
            code=machine.fault.code if machine.fault else None,
        )
        self.tell()

    # ------------------------------------------------------------------------------------- effects

    async def _attempt(self, machine: Machine, effect: Effect) -> tuple[Event, Evidence]:
        """Run an effect to its outcome, or until a word is said that counts."""
        turn = self.turn
        assert turn is not None
        deed = asyncio.create_task(self._deed(machine, effect), name=effect.key)
        try:
            while True:
                either: set[asyncio.Future[Any]] = {deed, turn.word}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not turn.word.done():
                    return self._outcome(machine, effect, deed)
                word = turn.word.result()
                if (machine.phase, type(word)) in TABLE:
                    return word, {}
                turn.word = asyncio.get_running_loop().create_future()  # it came too late
        finally:
            await _ended(deed)

    async def _deed(self, machine: Machine, effect: Effect) -> Evidence:
        async with asyncio.timeout(SECONDS.get(effect.verb)):
            return await DEEDS[effect.verb](self._site, machine.plan, effect)

    def _outcome(
        self, machine: Machine, effect: Effect, deed: asyncio.Task[Evidence]
    ) -> tuple[Event, Evidence]:
        """What became of a deed, as an event; foreign errors are translated here."""
        error = deed.exception()
        match error:
            case None:
                return Done(effect.key), deed.result()
            case EffectRefused() if effect.verb in (Verb.CHECK, Verb.IDENTIFY):
                return Refused(effect.key, error.fault), {}
            case Breach() if (machine.phase, Breached) in TABLE:
                return Breached(error.fault), {}
            case EffectRefused() | Breach() | EffectFailed():
                fault = error.fault
            case TimeoutError():
                fault = Fault("timeout", f"{effect.verb} was not done within {SECONDS[effect.verb]:g} s")
            case RegistryError():
                fault = Fault("registry_failed", str(error))
            case _:
                self._log.error("internal_error", operation=machine.plan.operation, **where(error))
                said = f"{effect.verb}: {type(error).__name__}; the gateway's log says where"
                fault = Fault("internal_error", said)
        return Failed(effect.key, fault), {}


async def _ended(task: asyncio.Task[Any]) -> None:
    """Wait until a task is over, cancelled if need be."""
    task.cancel()
    await asyncio.wait([task])


def _take(registry: Registry, operation: str) -> Step | None:
    """Begin a queued operation; None if it has ended in the queue."""
    machine = book.load(registry, operation)
    if machine.is_done:
        return None
    begun = step(machine, Begin())
    book.commit(registry, begun, Begin(), at=now(), actor=ACTOR)
    return begun


def cancel_queued(registry: Registry, operation: str, by: str) -> bool:
    """Cancel an operation whose turn has not come; False: it has. Raises UnknownRow."""
    machine = book.load(registry, operation)
    if machine.effect is not None or machine.is_done:
        return False
    word = Cancel(by)
    book.commit(registry, step(machine, word), word, at=now(), actor=by)
    return True
