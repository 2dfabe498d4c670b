"""Promotions as operators use them: ask for one, follow it, cancel it, go back; and what happens at start."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from app.config.config import Config
from app.engines.pool import EnginePool
from app.errors.tree import KeyTaken, NotStarted, Refused, StateFull, StateUnavailable, UnknownThing
from app.promotion import book, prove, waivers, wishes
from app.promotion.actor import Actor, Turn, Word, cancel_queued
from app.promotion.archive import Archive
from app.promotion.boot import Boot
from app.promotion.effects import Effect, Verb
from app.promotion.founding import found
from app.promotion.machine import Machine
from app.promotion.outcome import EffectFailed, EffectRefused
from app.promotion.phases import Breached, Cancel, Fault
from app.promotion.plan import Kind, Plan
from app.promotion.room import Room
from app.promotion.shelf import Shelf
from app.promotion.site import Site
from app.promotion.views import operation_view, plan_view, step_view
from app.promotion.wishes import Wish, now
from app.registry.errors import KeyReused, OperationUnderWay, StorageFailed, StorageFull, UnknownRow
from app.registry.reader import Reader
from app.registry.registry import Registry
from app.registry.values import Entry, Event, Operation
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from app.telemetry.reply_window import ReplyWindow
from deploy.core.tasks import spawn

STATE_SECONDS = 10.0
"""How long an operator waits for the registry before he is told that it does not answer."""
OVERRIDES_SECONDS = 0.5
"""How long a scrape waits for it; then it is told what was known last."""

ALIVE_SECONDS = 10.0
"""How often who follows an operation is told that there is no news."""

T = TypeVar("T")


class Promotions:
    """Everything about who serves a model. `start` before the first request, `stop` after the last."""

    def __init__(
        self,
        config: Config,
        pool: EnginePool,
        metrics: Metrics,
        log: Logger,
        room: Room,
        reply_window: ReplyWindow,
    ) -> None:
        self._config = config
        self._log = log
        self._metrics = metrics
        self._overrides: dict[str, int] = {}
        self._counting: asyncio.Task[None] | None = None
        self.shelf = Shelf(config.engines)
        self.archive = Archive(config.state_dir)
        self._site = Site(config, pool, self.shelf, self.archive, room, reply_window)
        self._actor = Actor(self._site, metrics, log)
        self._boot: Boot | None = None

    # ------------------------------------------------------------------------------- start and end

    async def open(self) -> None:
        """Take the registry. Raises RegistryError: another gateway has it, or it cannot be read."""
        await self.archive.open()

    async def start(self) -> None:
        """Begin to bring up who serves; returns at once. Operations that were interrupted are taken up."""
        at = now()
        live = await self.archive.do(lambda registry: found(registry, self._config, self.shelf, at))
        unfinished = await self.archive.do(self._unfinished)
        promoted = await self.archive.do(book.promoted)
        for model, engine in live.items():
            self._site.pool.route(model, self.shelf.name(engine))
            if engine in promoted:
                self._site.pool.trust(self.shelf.name(engine))
            wanted = self._config.models[model].live
            if self.shelf.name(engine) != wanted:
                self._log.warning("live_is_not_configured", model=model, engine=self.shelf.name(engine))
        self._boot = Boot(self._site, self._log)
        await self._boot.begin(live, unfinished)
        self._actor.start(unfinished)

    def _unfinished(self, registry: Registry) -> tuple[Machine, ...]:
        machines = book.unfinished(registry)
        for machine in machines:
            for digest in (machine.plan.candidate, machine.plan.incumbent):
                if known := registry.engine(digest):
                    self.shelf.remember(known)
        return machines

    async def stop(self) -> None:
        """Let go; what runs is taken up at the next start. Idempotent."""
        if self._counting is not None:
            self._counting.cancel()
        if self._boot is not None:
            await self._boot.stop()
        await self._actor.stop()
        await self.archive.close()

    # ------------------------------------------------------------------------------------- wishes

    async def ask(self, wish: Wish, actor: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Begin an operation, or say what it would do.

        Raises:
            UnknownModel, UnknownEngine, BadField, NotStarted
            Refused: with the code of what stands against it.
            KeyTaken: the idempotency key belongs to another wish.
        """
        self._check_started()
        wishes.check_model(self._config, wish.model)
        if wish.key is not None and not dry_run:
            key = wish.key
            known = await self.do(lambda registry: registry.operation_of_key(key))
            if known is not None:
                return self._same(known, wish)
        if wish.kind is Kind.ROLLBACK and not dry_run and (turn := self._hears(wish.model, Breached)):
            turn.say(Breached(Fault("turned_back", f"turned back by {actor}")))
            return await self.operation(turn.operation)
        plan = await self._plan(wish)
        await self._knock(plan, wish, actor, dry_run)
        if dry_run:
            return await self._told(plan)
        # Whoever asked may hang up; an operation that is in the registry must be in the queue, too.
        return await asyncio.shield(asyncio.ensure_future(self._begin(plan, wish, actor)))

    def _same(self, known: Operation, wish: Wish) -> dict[str, Any]:
        if known.request != wish.digest:
            raise KeyTaken("this idempotency key came with another request; take a new one")
        return operation_view(known, self.shelf)

    def _hears(self, model: str, word: type[Word]) -> Turn | None:
        turn = self._actor.turn
        ours = turn is not None and turn.machine is not None and turn.machine.plan.model == model
        return turn if turn is not None and ours and turn.hears(word) else None

    async def _plan(self, wish: Wish) -> Plan:
        if wish.kind is Kind.PROMOTE and wish.report is None:
            wish = await self._without_report(wish)
        try:
            standing = await self.do(lambda registry: wishes.standing(registry, wish.model))
        except OperationUnderWay as busy:
            raise Refused(str(busy), "busy") from None
        up = self._site.pool.running()
        return await asyncio.to_thread(
            wishes.plan, wish, standing, self._config, self.shelf, self._site.room, up
        )

    async def _without_report(self, wish: Wish) -> Wish:
        """An override may stand in its place; the plan then names that. Raises Refused, UnknownEngine."""
        engine = self.shelf.digest(wish.engine or "")
        for seq, held in (await self.do(waivers.active)).items():
            if (held.model, held.engine) == (wish.model, engine) and "report_missing" in held.waives:
                return replace(wish, report=f"override:{seq}")
        raise Refused("no report was named; upload one to /admin/reports", "report_missing")

    async def _knock(self, plan: Plan, wish: Wish, actor: str, dry_run: bool) -> None:
        """Ask the door before anything begins. Raises Refused, and the audit tells of it; StateUnavailable."""
        try:
            with self.telling_state():
                await prove.check(self._site, plan, Effect("", Verb.CHECK, plan.candidate))
        except (EffectRefused, EffectFailed) as no:
            detail = {"engine": wish.engine, "report": wish.report, "code": no.fault.code}
            entry = Entry(
                at=now(), actor=actor, verb=f"{wish.kind}.refused", subject=wish.model, detail=detail
            )
            if not dry_run:
                await self.do(lambda registry: registry.note(entry))
            raise Refused(no.fault.message, no.fault.code) from None

    async def _told(self, plan: Plan) -> dict[str, Any]:
        up = self._site.pool.running()
        memory = await asyncio.to_thread(wishes.memory, plan, self.shelf, self._site.room, up)
        return plan_view(plan, self.shelf, up, memory)

    async def _begin(self, plan: Plan, wish: Wish, actor: str) -> dict[str, Any]:
        try:
            operation = await self.do(
                lambda registry: book.begin(
                    registry, plan, at=now(), actor=actor, key=wish.key, request=wish.digest
                )
            )
        except OperationUnderWay as busy:
            raise Refused(str(busy), "busy") from None
        except KeyReused as reused:
            raise KeyTaken(str(reused)) from None
        if operation.id == plan.operation:
            self._actor.put(operation.id)
        return operation_view(operation, self.shelf)

    async def cancel(self, operation: str, by: str) -> dict[str, Any]:
        """Raises UnknownThing, Refused (not_cancellable)."""
        shown = await self.operation(operation)
        turn = self._actor.turn
        if turn is None or turn.operation != operation:
            cancelled = await self.do(lambda registry: cancel_queued(registry, operation, by))
            self._actor.tell()
            shown = await self.operation(operation)
            if cancelled:
                return shown
            turn = self._actor.turn
        if turn is None or turn.operation != operation or not turn.hears(Cancel):
            cure = "it has ended" if shown["done"] else "it has switched; roll back instead"
            raise Refused(f"{operation} cannot be cancelled: {cure}", "not_cancellable")
        turn.say(Cancel(by))
        return shown

    # ------------------------------------------------------------------------------ what is known

    async def operation(self, id: str) -> dict[str, Any]:
        """Raises UnknownThing."""
        return operation_view(await self._row(id), self.shelf)

    async def operations(self, limit: int) -> list[dict[str, Any]]:
        """The newest first."""
        rows = await self.do(lambda registry: registry.operations())
        return [operation_view(row, self.shelf) for row in reversed(rows[-limit:])]

    async def follow(self, id: str, after: int) -> AsyncIterator[tuple[str, int, dict[str, Any]]]:
        """What happens to an operation, from the event after `after` on: (kind, seq, value).

        Kinds: "step", then "done" with the operation itself; "" where there was no news for a while.
        Raises UnknownThing.
        """
        await self._row(id)
        while True:
            news = self._actor.news
            rows, operation = await self.do(partial(_seen, operation=id, after=after))
            for row in rows:
                after = row.seq
                yield "step", row.seq, step_view(row)
            if operation.done:
                yield "done", after, operation_view(operation, self.shelf)
                return
            try:
                async with asyncio.timeout(ALIVE_SECONDS):
                    await news.wait()
            except TimeoutError:
                yield "", after, {}

    async def standing(self) -> dict[str, dict[str, Any]]:
        """Per model: live, previous, baseline, and the operation that is under way."""
        if not self.archive.is_open:
            return {}
        return await self.do(self._standing)

    async def overrides(self) -> dict[str, int]:
        """How many overrides of the door hold now, by model; as last known while the registry does not answer."""
        if not self.archive.is_open:
            return {}
        if self._counting is None or self._counting.done():
            self._counting = spawn(self._count_overrides(), "overrides")
        await asyncio.wait({self._counting}, timeout=OVERRIDES_SECONDS)
        return self._overrides

    async def _count_overrides(self) -> None:
        with suppress(StateUnavailable):  # it is counted
            held = (await self.do(waivers.active)).values()
            self._overrides = {
                model: sum(one.model == model for one in held) for model in self._config.models
            }

    def _standing(self, reader: Reader) -> dict[str, dict[str, Any]]:
        shown: dict[str, dict[str, Any]] = {}
        overrides = waivers.active(reader)
        for model in self._config.models:
            found = {name: reader.alias(model, name) for name in ("live", "previous", "baseline")}
            names = {n: self.shelf.name(a.engine) if a and a.engine else None for n, a in found.items()}
            live, running = found["live"], reader.unfinished(model)
            held = [(seq, one) for seq, one in overrides.items() if one.model == model]
            shown[model] = {
                **names,
                "generation": live.generation if live else 0,
                "since": live.since if live else None,
                "operation": operation_view(running, self.shelf) if running else None,
                "override": waivers.shown(*held[-1], self.shelf) if held else None,
            }
        return shown

    async def _row(self, id: str) -> Operation:
        try:
            return await self.do(lambda registry: registry.operation(id))
        except UnknownRow as unknown:
            raise UnknownThing(str(unknown), "operation_not_found") from None

    async def do(self, work: Callable[[Registry], T]) -> T:
        """What `work` finds in the registry, or does to it. Raises NotStarted, StateUnavailable.

        One that does not answer in time may still do it, once it can.
        """
        self._check_started()
        asked = asyncio.ensure_future(self.archive.do(work))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at
        with self.telling_state():
            await asyncio.wait({asked}, timeout=STATE_SECONDS)
            if not asked.done():
                raise StorageFailed(f"the registry did not answer within {STATE_SECONDS:g} s; see its disk")
            return asked.result()

    @contextmanager
    def telling_state(self) -> Iterator[None]:
        """The registry's failures as errors for operators, counted."""
        try:
            yield
        except StorageFailed as error:
            self._metrics.state_failed(error.code)
            kind = StateFull if isinstance(error, StorageFull) else StateUnavailable
            raise kind(str(error), error.code) from None
        self._metrics.state_works()

    def _check_started(self) -> None:
        if not self.archive.is_open:
            raise NotStarted("the gateway has not opened its registry; try again soon")


def _seen(reader: Reader, operation: str, after: int) -> tuple[tuple[Event, ...], Operation]:
    """What happened to an operation, and where it stands, of one moment."""
    return reader.events(after=after, operation=operation), reader.operation(operation)
