"""The promotion service that operators use: promote, roll back, follow, cancel; and its start and stop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from app.config.config import Config
from app.engines.pool import EnginePool
from app.errors.tree import NotStarted, Refused, StateUnavailable, UnknownThing
from app.promotion import overrides, repository, requests, startup, steps
from app.promotion.facts import suite_in_force, verified
from app.promotion.inspection import ReplicaWatch
from app.promotion.memory_admission import MemoryAdmission
from app.promotion.overrides import Override
from app.promotion.repository import RegistryExecutor, now
from app.promotion.requests import PromotionRequest
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.startup import ACTOR, bound_to_reports, current_roots, record_configuration
from app.promotion.state_machine import (
    Action,
    Effect,
    EffectError,
    FailureReason,
    OperationEvent,
    OperationKind,
    OperationPlan,
    OperationState,
    RefusalError,
)
from app.promotion.steps import Dependencies
from app.promotion.views import operation_view, plan_view, row_view, step_view
from app.promotion.worker import PromotionWorker, RunningOperation
from app.registry.errors import Conflict, OperationUnderWay, StorageFailed, UnknownRow
from app.registry.registry import Registry, RegistryReader
from app.registry.values import AuditEntry, KnownEngine, OperationRow, Revocation
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from app.telemetry.reply_window import ReplyWindow
from deploy.core.tasks import report, supervise
from deploy.engine.spec import EngineSpec

STATE_SECONDS = 10.0
"""Timeout of an operator's request to the registry."""
PREEMPT_SECONDS = 30.0
"""How long a rollback waits for the operation of its model that it has cancelled."""
STANDINGS_SECONDS = 0.5
"""How long a metrics scrape waits for the registry; then it gets the last known figures."""

ALIVE_SECONDS = 2.0
"""How often a client that follows an operation gets a keepalive, and is asked whether it may still follow."""

T = TypeVar("T")


class PromotionService:
    """Decides which engine serves each model. `start` before the first request, `stop` after the last."""

    def __init__(
        self,
        config: Config,
        pool: EnginePool,
        metrics: Metrics,
        log: Logger,
        memory: MemoryAdmission,
        reply_window: ReplyWindow,
    ) -> None:
        self._log = log
        self._standings: dict[str, dict[str, Any]] = {}
        self.catalogue = SpecCatalogue(config.engines)
        self.registry = RegistryExecutor(config.state_dir, metrics, log)
        self._deps = Dependencies(config, pool, self.catalogue, self.registry, memory, reply_window)
        self._worker = PromotionWorker(self._deps, metrics, log)
        self._coming: Mapping[str, tuple[KnownEngine, ...]] = {}  # models that a reload adds: live engines
        self._tasks: list[asyncio.Task[None]] = []

    async def prepare(self, config: Config) -> None:
        """Record what this configuration adds. Raises Refused (restart_required, live_not_gated), NotStarted, StateUnavailable."""
        before, self._coming = self._deps.config, {}
        added = {name: spec for name, spec in config.engines.items() if spec != before.engines.get(name)}
        models = config.models.keys() - before.models.keys()
        if clashes := self.catalogue.clashes(added):
            names = ", ".join(f"engines.{name}" for name in clashes)
            raise Refused(
                f"a restart is needed for {names}: an earlier engine of that name is still in use",
                "restart_required",
            )
        if added or models:
            catalogue = SpecCatalogue(config.engines)
            self._coming = await self.do(
                lambda registry: record_configuration(registry, config, catalogue, now(), models)
            )
            await self._deps.remember(config)

    def apply(self, config: Config) -> None:
        """Take a configuration with no model and no engine less, after `prepare`; the engines of new models start.

        Suite and policy are read again when they are needed.
        """
        self._deps.config = config
        self.catalogue.configure(config.engines)
        suite_in_force.cache_clear()
        for model, engines in self._coming.items():
            for engine in engines:
                self.catalogue.add(engine)
            self._deps.pool.route(model, *(self.catalogue.name(engine.digest) for engine in engines))
        pool = self._deps.pool
        names = {name for model in self._coming for name in pool.model_route(model).engines} - pool.running()
        self._load(startup.start(self._deps, [d for d, spec in self.catalogue.items() if spec.name in names]))

    def engines_in_use(self) -> frozenset[str]:
        """The engines that run, or that an unfinished operation is about."""
        plans = [running.state.plan for running in self._worker.running.values()]
        named = {self.catalogue.name(engine) for plan in plans for engine in (*plan.new, *plan.old)}
        return self._deps.pool.running() | named

    # ------------------------------------------------------------------------------- start and end

    async def open(self) -> None:
        """Open the registry. Raises RegistryError: another gateway has it, or it cannot be read."""
        await self.registry.open()

    async def start(self) -> None:
        """Begin to bring up the live engines and to recover interrupted operations; returns at once.

        Raises Refused (live_not_gated): `[gates] require` does not let the configured engine serve.
        """
        live, unfinished, gated = await self.registry.run(self._found)
        for engine in gated:
            self._deps.pool.trust(self.catalogue.name(engine))
        for model, engines in live.items():
            names = tuple(map(self.catalogue.name, engines))
            self._deps.pool.route(model, *names)
            if names != self._deps.config.models[model].live:
                self._log.warning("live_is_not_configured", model=model, engine=", ".join(names))
        await self._deps.remember()
        plans = [state.plan for state, _ in unfinished]
        self._load(await startup.begin(self._deps, self._log, live, plans))
        waiting = sorted(gated & {engine for engines in live.values() for engine in engines})
        watch = ReplicaWatch(self._deps.pool, self.catalogue, self._log)
        self._tasks += [
            supervise(partial(self._verify_weights, waiting), "weights"),
            supervise(watch.run, "replicas"),
        ]
        for state, created in unfinished:
            self._worker.run(self._worker.reserve(state, created), OperationEvent.RESTART)

    def _load(self, waiting: list[EngineSpec]) -> None:
        self._tasks.append(supervise(partial(startup.load, self._deps, self._log, waiting), "boot"))

    def _found(
        self, registry: Registry
    ) -> tuple[Mapping[str, tuple[str, ...]], list[tuple[OperationState, str]], frozenset[str]]:
        """The live engines; the interrupted operations, and when each was created; the engines that a report let in."""
        recorded = record_configuration(registry, self._deps.config, self.catalogue, now())
        live = {model: tuple(engine.digest for engine in engines) for model, engines in recorded.items()}
        rows = registry.all(OperationRow, done=False)
        unfinished = [(repository.state_of(row), row.created) for row in rows]
        for digest in (one for state, _ in unfinished for one in (*state.plan.new, *state.plan.old)):
            if known := registry.find(KnownEngine, digest=digest):
                self.catalogue.add(known)
        roots = current_roots(self.catalogue)
        gated = repository.gated(registry, roots)
        return live, unfinished, gated | bound_to_reports(gated, live.values(), roots)

    async def _verify_weights(self, waiting: list[str]) -> None:
        """Read every byte of the live engines' weights, and distrust an engine that is not what was promoted.

        Until then the manifest is believed. Each is taken from `waiting` before it is read: a restart skips one that fails.
        """
        while waiting:
            engine = waiting.pop(0)
            try:
                artefact, why = await asyncio.to_thread(verified, self.catalogue[engine])
            except Exception as error:  # what cannot be read is not what was promoted, as far as is known
                report("weights", error)
                artefact, why = None, f"its weights could not be read ({type(error).__name__})"
            if artefact is None:
                name = self.catalogue.name(engine)
                self._deps.pool.trust(name, gated=False)
                why = why.encode("utf-8", "replace").decode()  # the name of a file may be any bytes
                self._log.error("weights_changed", engine=name, reason=why)
                with suppress(StateUnavailable):  # counted in the metrics
                    await self._note(ACTOR, "engine.weights_changed", name, {"reason": why})

    async def _note(self, actor: str, verb: str, subject: str, detail: Mapping[str, object]) -> None:
        """Add an entry to the audit that changes nothing else. Raises NotStarted, StateUnavailable."""
        entry = AuditEntry(at=now(), actor=actor, verb=verb, subject=subject, detail=detail)
        await self.do(lambda registry: registry.note(entry))

    async def stop(self) -> None:
        """Stop; an operation that runs is recovered at the next start. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._worker.stop()
        await self.registry.close()

    # ------------------------------------------------------------------------------------- requests

    async def submit(self, request: PromotionRequest, actor: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Begin an operation and return its view; or, for a dry run, what it would do.

        Raises:
            UnknownThing, BadField, NotStarted
            Refused: with the code of the reason; idempotency_key_reused: the key belongs to another request.
        """
        self._check_started()
        requests.check_model(self._deps.config, request.model)
        if not dry_run:
            if known := await self._of_key(request):
                return row_view(known, self.catalogue)
            running = self._worker.running.get(request.model)
            goes_back = request.kind is OperationKind.ROLLBACK
            if running is not None and goes_back and not await self._preempt(running, actor):
                return self._view(running)
        plan = await self._plan(request)
        await self._check(plan, request, actor, dry_run)
        if dry_run:
            return plan_view(plan, self.catalogue, self._deps.pool.running())
        # The client may hang up; an operation that is in the registry must also be in the queue.
        return await asyncio.shield(asyncio.ensure_future(self._begin(plan, request, actor)))

    async def _of_key(self, request: PromotionRequest) -> OperationRow | None:
        """The operation that this key began before. A rollback goes on if the registry does not answer."""
        key, goes_back = request.key, request.kind is OperationKind.ROLLBACK
        if key is None:
            return None
        seconds = steps.ANSWER_SECONDS if goes_back else STATE_SECONDS
        try:
            known = await self.do(lambda registry: registry.find(OperationRow, key=key), seconds=seconds)
        except StateUnavailable:
            if goes_back:
                return None
            raise
        if known is not None and known.request != request.digest:
            message = "this idempotency key came with another request; take a new one"
            raise Refused(message, "idempotency_key_reused")
        return known

    async def _preempt(self, running: RunningOperation, actor: str) -> bool:
        """A rollback comes before what runs for its model. Whether it has to be an operation of its own.

        If the candidate serves, the running operation goes back. If it does not, the running operation is cancelled, and
        the live engine is rolled back, if another one served before it.
        """
        if running.state.goes_back:
            return False
        if running.state.takes(OperationEvent.BREACHED):
            running.send(OperationEvent.BREACHED, FailureReason("turned_back", f"turned back by {actor}"))
            return False
        running.cancel(actor)
        if not (await self._deps.snapshot(running.state.plan.model)).before:
            return False
        try:
            async with asyncio.timeout(PREEMPT_SECONDS):
                await running.ended.wait()
        except TimeoutError:
            raise Refused(
                f"{running.id} is being cancelled; roll back again when it has ended", "busy"
            ) from None
        return True

    def _view(self, running: RunningOperation) -> dict[str, Any]:
        behind = running.is_behind
        return operation_view(running.state, running.created, self.catalogue, written=not behind)

    async def _plan(self, request: PromotionRequest) -> OperationPlan:
        goes_back = request.kind is OperationKind.ROLLBACK
        if not goes_back and request.report is None:
            request = await self._with_override(request)
        if running := self._worker.running.get(request.model):
            raise Refused(str(OperationUnderWay(request.model, running.id)), "busy")
        read = (
            self._deps.snapshot(request.model)
            if goes_back
            else self.do(partial(requests.snapshot, model=request.model))
        )
        found, up = await read, self._deps.pool.running()
        return await asyncio.to_thread(
            requests.plan, request, found, self._deps.config, self.catalogue, self._deps.memory, up
        )

    async def _with_override(self, request: PromotionRequest) -> PromotionRequest:
        """Without a report: name the override that waives it, if there is one. Raises Refused, UnknownThing."""
        engine = self.catalogue.digest(request.engine or "")
        for seq, held in (await self.active_overrides()).items():
            if (held.model, held.engine) == (request.model, engine) and "report_missing" in held.waives:
                return replace(request, report=f"{repository.OVERRIDE}{seq}")
        raise Refused("no report was named; upload one to /admin/reports", "report_missing")

    async def _ask(self, plan: OperationPlan, action: Action) -> None:
        """Whether the candidate and its replicas are eligible. Raises RefusalError, EffectError, StorageFailed."""
        for engine in plan.new:
            await steps.HANDLERS[action](self._deps, plan, Effect("", action, engine))

    async def _check(self, plan: OperationPlan, request: PromotionRequest, actor: str, dry_run: bool) -> None:
        """Check eligibility before anything begins. Raises Refused, which the audit records; StateUnavailable."""
        try:
            with self.reporting_state():
                await self._ask(plan, Action.CHECK)
        except (RefusalError, EffectError) as refusal:
            detail = {"engine": request.engine, "report": request.report, "code": refusal.fault.code}
            if not dry_run:
                await self._note(actor, f"{request.kind}.refused", request.model, detail)
            raise Refused(refusal.fault.message, refusal.fault.code) from None

    async def _begin(self, plan: OperationPlan, request: PromotionRequest, actor: str) -> dict[str, Any]:
        """Begin a promotion once it is in the registry, and a rollback at once."""
        at, worker = now(), self._worker

        def begin(registry: Registry) -> None:
            repository.begin(registry, plan, at=at, actor=actor, key=request.key, request=request.digest)

        def begun(done: asyncio.Future[None]) -> None:
            # As soon as it is known, though a disk may take longer than an operator is kept waiting.
            failed = done.cancelled() or done.exception()
            worker.dismiss(running) if failed else worker.run(running, OperationEvent.BEGIN)

        try:
            running = worker.reserve(OperationState(plan), at)
            if plan.kind is OperationKind.ROLLBACK:
                worker.run(running, OperationEvent.BEGIN, begin)
            else:
                await self.do(begin, then=begun)
        except OperationUnderWay as busy:
            raise Refused(str(busy), "busy") from None
        except Conflict:
            message = "this idempotency key has just begun another operation; take a new one"
            raise Refused(message, "idempotency_key_reused") from None
        return self._view(running)

    async def revoke(self, revocation: Revocation, entry: AuditEntry) -> None:
        """Revoke something for good; a promotion that rests on it and serves goes back at once. Raises StateUnavailable."""
        await self.do(lambda registry: registry.revoke(revocation, entry))
        await self._deps.remember()
        for running in tuple(self._worker.running.values()):
            if running.state.takes(OperationEvent.BREACHED) and not running.state.goes_back:
                try:
                    await self._ask(running.state.plan, Action.RECHECK)
                except RefusalError as refusal:
                    running.send(OperationEvent.BREACHED, refusal.fault)
                except (
                    EffectError,
                    StorageFailed,
                ):  # the operation asks once more before the incumbent is stopped
                    pass

    async def cancel(self, operation: str, by: str) -> dict[str, Any]:
        """Cancel an operation; its view. Raises UnknownThing, Refused (not_cancellable)."""
        shown = await self.operation(operation)
        running = self._worker.find(operation)
        if running is None or not running.state.takes(OperationEvent.CANCEL):
            cure = "it has ended" if shown["done"] else "it has switched; roll back instead"
            raise Refused(f"{operation} cannot be cancelled: {cure}", "not_cancellable")
        running.cancel(by)
        return shown

    # ---------------------------------------------------------------------------------- views

    async def operation(self, id: str) -> dict[str, Any]:
        """The view of an operation. Raises UnknownThing."""
        running = self._worker.find(id)
        return self._view(running) if running else row_view(await self._row(id), self.catalogue)

    async def operations(self, limit: int) -> list[dict[str, Any]]:
        """The views of the latest operations, the newest first."""
        rows = await self.do(lambda registry: registry.latest_operations(limit))
        running = {one.id: self._view(one) for one in self._worker.running.values()}
        known = [running.pop(row.id, {}) or row_view(row, self.catalogue) for row in rows]
        return [*running.values(), *known][:limit]

    async def follow(self, id: str, after: int) -> AsyncIterator[tuple[str, int, dict[str, Any]]]:
        """The events of an operation, beginning with the one after `after`: (kind, seq, value).

        Kinds: "step", and at the end "done" with the operation itself; "" as a keepalive.
        Raises UnknownThing.
        """
        while True:
            changed = self._worker.changed
            shown = await self.operation(id)  # before its events, so that those of its end are among them
            rows = await self.do(partial(RegistryReader.events, after=after, operation=id))
            for row in rows:
                after = row.seq
                yield "step", row.seq, step_view(row)
            if shown["done"]:
                yield "done", after, shown
                return
            try:
                async with asyncio.timeout(ALIVE_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield "", after, {}

    async def models(self) -> dict[str, dict[str, Any]]:
        """For each model: live, previous, its overrides and reports, and the unfinished operation."""
        if not self.registry.is_open:
            return {}
        shown = await self.do(self._models)
        for model, running in self._worker.running.items():
            if model in shown and (running.is_behind or not running.state.is_done):
                shown[model]["operation"] = self._view(running)
        return shown

    async def active_overrides(self) -> dict[int, Override]:
        """The overrides that are active now, by the number of their audit event."""
        at = datetime.now(UTC)
        return await self.do(lambda registry: overrides.active(registry, at))

    async def standings(self) -> dict[str, dict[str, Any]]:
        """Each model as the registry has it; while it does not answer, as it had it last."""
        if not self.registry.is_open:
            return {}
        with suppress(TimeoutError, StateUnavailable):  # the latter is counted in the metrics
            async with asyncio.timeout(STANDINGS_SECONDS):
                self._standings = await self.do(self._models)
        return self._standings

    def _models(self, reader: RegistryReader) -> dict[str, dict[str, Any]]:
        active = overrides.active(reader, datetime.now(UTC))
        return {model: self._model(reader, model, active) for model in self._deps.config.models}

    def _model(self, reader: RegistryReader, model: str, active: Mapping[int, Override]) -> dict[str, Any]:
        config, catalogue = self._deps.config, self.catalogue
        found = {name: reader.alias(model, name) for name in ("live", "previous")}
        names = {n: catalogue.name(a.engine) if a and a.engine else None for n, a in found.items()}
        live, unfinished = found["live"], reader.find(OperationRow, model=model, done=False)
        engine = live.engine if live and live.engine else ""
        engines = {engine, *map(catalogue.digest, config.models[model].engines)}
        artefacts = {
            one.artefact
            for name in engines
            if (one := reader.find(KnownEngine, digest=name)) and one.artefact
        }
        held = [(seq, one) for seq, one in active.items() if one.model == model]
        waived = overrides.waived_codes(active.values(), model=model, engine=engine)
        return {
            **names,
            "gated": self._deps.pool.is_gated(names["live"] or ""),
            "generation": live.generation if live else 0,
            "since": live.since if live else None,
            "operation": row_view(unfinished, catalogue) if unfinished else None,
            "override": overrides.view(*held[-1], catalogue) if held else None,
            "overrides": len(held),
            "report_expected": config.gates.require is True
            or repository.has_reports(reader, model, artefacts),
            "override_ended": not repository.waived_for(reader, model, engine) <= waived,
        }

    async def _row(self, id: str) -> OperationRow:
        try:
            return await self.do(lambda registry: registry.operation(id))
        except UnknownRow as unknown:
            raise UnknownThing(str(unknown), "operation_not_found") from None

    async def do(
        self,
        work: Callable[[Registry], T],
        then: Callable[[asyncio.Future[T]], object] | None = None,
        seconds: float = STATE_SECONDS,
    ) -> T:
        """The result of `work` on the registry, within a timeout. Raises NotStarted, StateUnavailable.

        After a timeout the work may still be done later. `then` is called with its future whenever it is done.
        """
        self._check_started()
        pending = asyncio.ensure_future(self.registry.run(work))
        if then is not None:
            pending.add_done_callback(then)
        pending.add_done_callback(lambda done: done.cancelled() or done.exception())  # marked as retrieved
        with self.reporting_state():
            await asyncio.wait({pending}, timeout=seconds)
            if not pending.done():
                raise StorageFailed(f"the registry did not answer within {seconds:g} s; see its disk")
            return pending.result()

    @contextmanager
    def reporting_state(self) -> Iterator[None]:
        """Translate the registry's failures into errors for operators, and report them."""
        try:
            yield
        except StorageFailed as error:
            self.registry.failed(error)
            raise StateUnavailable(str(error), error.code) from None
        if self.registry.takes_writes:  # reading, as each scrape does, shows nothing of a read-only disk
            self.registry.works()

    def _check_started(self) -> None:
        if not self.registry.is_open:
            raise NotStarted("the gateway has not opened its registry; try again soon")
