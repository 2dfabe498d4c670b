"""The promotion service that operators use: promote, roll back, follow, cancel; and its start and stop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from app.config.config import Config
from app.engines.identity import manifest_of
from app.engines.pool import EnginePool
from app.errors.tree import Refused, UnknownThing
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
from app.registry.errors import Conflict, StorageFailed
from app.registry.registry import Registry, RegistryReader
from app.registry.values import AuditEntry, KnownEngine, KnownReport, OperationRow, Revocation
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from app.telemetry.reply_window import ReplyWindow
from deploy.core.tasks import report, supervise
from deploy.engine.spec import EngineSpec
from gates.contracts.errors import ManifestError

PREEMPT_SECONDS = 30.0  # how long a rollback waits for the operation of its model that it has cancelled
STANDINGS_SECONDS = 0.5  # how long a metrics scrape waits for the registry; afterwards the last figures stay
ALIVE_SECONDS = 2.0  # how often a client that follows an operation gets a keepalive, and its right is checked


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
        self.catalogue = SpecCatalogue(config.engines)
        self.registry = RegistryExecutor(config.state_dir, metrics, log)
        self.do, self.reporting_state = self.registry.do, self.registry.reporting_state
        self._deps = Dependencies(config, pool, self.catalogue, self.registry, memory, reply_window)
        self._worker = PromotionWorker(self._deps, metrics, log)
        self._coming: Mapping[
            str, tuple[KnownEngine, ...]
        ] = {}  # live engines of the models that a reload adds
        self._tasks: list[asyncio.Task[None]] = []

    async def prepare(self, config: Config) -> None:
        """Record what this configuration adds. Raises Refused (restart_required, live_not_gated), StorageFailed."""
        self._coming = {}
        self.catalogue.check(config.engines)
        catalogue, models = (
            SpecCatalogue(config.engines),
            config.models.keys() - self._deps.config.models.keys(),
        )
        self._coming = await self.do(
            lambda registry: record_configuration(registry, config, catalogue, now(), models)
        )
        await self._deps.remember(config)

    def apply(self, config: Config) -> None:
        """Apply a configuration that `prepare` has checked: it removes no model and no engine. Those of new models start."""
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

    async def start(self) -> None:
        """Begin to bring up the live engines and to recover interrupted operations. Raises Refused (live_not_gated)."""
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
        watch = ReplicaWatch(self._deps.pool, self._log)
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

        Until then the manifest counts. Each engine leaves `waiting` before it is read: a restart of this task skips one that fails.
        """
        while waiting:
            engine = waiting.pop(0)
            try:
                await asyncio.to_thread(verified, self.catalogue[engine])
                continue
            except ManifestError as error:
                why = str(error).encode("utf-8", "replace").decode()  # the name of a file may be any bytes
            except Exception as error:  # unreadable weights count as changed
                report("weights", error)
                why = f"its weights could not be read ({type(error).__name__})"
            name = self.catalogue.name(engine)
            self._deps.pool.trust(name, gated=False)
            self._log.error("weights_changed", engine=name, reason=why)
            with suppress(StorageFailed):  # counted in the metrics
                await self._note(ACTOR, "engine.weights_changed", name, {"reason": why})

    async def _note(self, actor: str, verb: str, subject: str, detail: Mapping[str, object]) -> None:
        """Add an entry to the audit that changes nothing else. Raises StorageFailed."""
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

        Raises UnknownThing, BadField, StorageFailed; Refused, with the code of the reason.
        """
        self._deps.config.model(request.model)
        if not dry_run:
            if known := await self._of_key(request):
                return row_view(known, self.catalogue)
            running = self._worker.running.get(request.model)
            if running is not None and request.goes_back and not await self._preempt(running, actor):
                return self._view(running)
        plan = await self._plan(request)
        await self._check(plan, request, actor, dry_run)
        if dry_run:
            return plan_view(plan, self.catalogue, self._deps.pool.running())
        return await self._begin(plan, request, actor)

    async def _of_key(self, request: PromotionRequest) -> OperationRow | None:
        """The operation that this key began earlier. A rollback goes on if the registry does not answer."""
        key, known = request.key, None
        if key is not None:
            seconds = steps.ANSWER_SECONDS if request.goes_back else None
            with suppress(StorageFailed) if request.goes_back else nullcontext():
                known = await self.do(lambda registry: registry.find(OperationRow, key=key), seconds)
        if known is not None and known.request != request.digest:
            message = "this idempotency key came with another request; take a new one"
            raise Refused(message, "idempotency_key_reused")
        return known

    async def _preempt(self, running: RunningOperation, actor: str) -> bool:
        """Let a rollback end what runs for its model. Returns whether it needs an operation of its own.

        An operation whose candidate serves goes back itself. Any other is cancelled; then the live engine is rolled back,
        if another one served before it.
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
            message = f"{running.id} is being cancelled; roll back again when it has ended"
            raise Refused(message, "busy") from None
        return True

    def _view(self, running: RunningOperation) -> dict[str, Any]:
        return operation_view(running.state, running.created, self.catalogue, written=not running.is_behind)

    async def _plan(self, request: PromotionRequest) -> OperationPlan:
        self._worker.check_free(request.model)
        if request.goes_back:
            found = await self._deps.snapshot(request.model)
        else:
            found = await self.do(partial(requests.snapshot, model=request.model))
        deps, up = self._deps, self._deps.pool.running()
        return await asyncio.to_thread(
            requests.plan, request, found, deps.config, deps.catalogue, deps.memory, up
        )

    async def _ask(self, plan: OperationPlan, action: Action) -> None:
        """Check that the candidate and its replicas are eligible. Raises RefusalError, EffectError, StorageFailed."""
        for engine in plan.new:
            await steps.HANDLERS[action](self._deps, plan, Effect("", action, engine))

    async def _check(self, plan: OperationPlan, request: PromotionRequest, actor: str, dry_run: bool) -> None:
        """Check eligibility before anything begins. Raises Refused, which the audit records; StorageFailed."""
        try:
            with self.reporting_state():
                await self._ask(plan, Action.CHECK)
        except EffectError as refusal:
            detail = {"engine": request.engine, "report": request.report, "code": refusal.fault.code}
            if not dry_run:
                await self._note(actor, f"{request.kind}.refused", request.model, detail)
            raise Refused(refusal.fault.message, refusal.fault.code) from None

    async def _begin(self, plan: OperationPlan, request: PromotionRequest, actor: str) -> dict[str, Any]:
        """Begin a promotion once it is in the registry, and a rollback at once."""
        at, worker = now(), self._worker
        running = worker.reserve(OperationState(plan), at)

        def begin(registry: Registry) -> None:
            repository.begin(registry, plan, at=at, actor=actor, key=request.key, request=request.digest)

        async def begun() -> None:
            # Carry out what the registry has, also if the client hangs up or the disk takes longer than it waits.
            try:
                await self.registry.run(begin)
            except BaseException:
                worker.dismiss(running)
                raise
            worker.run(running, OperationEvent.BEGIN)

        if request.goes_back:
            worker.run(running, OperationEvent.BEGIN, begin)
            return self._view(running)
        try:
            await self.registry.answer(begun())
        except Conflict:
            message = "this idempotency key has just begun another operation; take a new one"
            raise Refused(message, "idempotency_key_reused") from None
        return self._view(running)

    async def revoke(self, revocation: Revocation, entry: AuditEntry) -> None:
        """Revoke something for good. A promotion that rests on it goes back at once if its candidate serves. Raises StorageFailed."""
        await self.do(lambda registry: registry.revoke(revocation, entry))
        await self._deps.remember()
        for running in tuple(self._worker.running.values()):
            if running.state.takes(OperationEvent.BREACHED) and not running.state.goes_back:
                try:
                    await self._ask(running.state.plan, Action.RECHECK)
                except RefusalError as refusal:
                    running.send(OperationEvent.BREACHED, refusal.fault)
                except (EffectError, StorageFailed):
                    pass  # a later recheck asks before the incumbent stops

    async def cancel(self, operation: str, by: str) -> dict[str, Any]:
        """Cancel an operation; its view. Raises UnknownThing, Refused (not_cancellable)."""
        shown = await self.operation(operation)
        running = self._worker.find(operation)
        if running is None or not running.state.takes(OperationEvent.CANCEL):
            cure = "it has ended" if shown["done"] else "it has switched; roll back instead"
            raise Refused(f"{operation} cannot be cancelled: {cure}", "not_cancellable")
        running.cancel(by)
        return shown

    async def eligible(self, model: str, engine: str) -> dict[str, Any]:
        """Why an engine may serve, by the latest report about its weights; their manifest is believed. Raises Refused."""
        self._deps.config.model(model)
        self._worker.check_free(model)  # the bake of one that serves is to judge first
        weights = await asyncio.to_thread(manifest_of, self.catalogue[engine])
        found = await self.do(lambda registry: registry.all(KnownReport, artefact=weights and weights.root))
        report, kind = found[-1].digest if found else None, OperationKind.PROMOTE
        named: dict[str, Any] = {"operation": "", "generation": 0, "strategy": "blue_green", "incumbent": ""}
        plan = OperationPlan(kind=kind, model=model, candidate=engine, report=report, **named)
        try:
            return await steps.check(self._deps, plan, Effect("", Action.CHECK, engine), False)
        except EffectError as refusal:
            raise Refused(refusal.fault.message, refusal.fault.code) from None

    async def went_back(self, model: str, engine: str) -> dict[str, Any]:
        """The model's latest operation, if it went back from an engine, or is about to. Raises Refused, StorageFailed."""
        rows = await self.do(lambda registry: registry.all(OperationRow, model=model))
        for row, state in ((row, repository.state_of(row)) for row in rows[-1:]):
            left = {"promote.rolled_back": state.plan.new, "rollback.succeeded": state.plan.old}
            if engine in left.get(f"{row.kind}.{state.outcome or state.phase}", ()):
                return row_view(row, self.catalogue)
        raise Refused(f"the latest operation of {model} did not go back from this engine", "not_rolled_back")

    # ---------------------------------------------------------------------------------- views

    async def operation(self, id: str) -> dict[str, Any]:
        """The view of an operation. Raises UnknownThing."""
        if running := self._worker.find(id):
            return self._view(running)
        if row := await self.do(lambda registry: registry.find(OperationRow, id=id)):
            return row_view(row, self.catalogue)
        raise UnknownThing(f"there is no operation {id:.64}", "operation_not_found")

    async def operations(self, limit: int) -> list[dict[str, Any]]:
        """The views of the latest operations, the newest first."""
        rows = await self.do(lambda registry: registry.all(OperationRow, order=f"rowid DESC LIMIT {limit:d}"))
        running = {one.id: self._view(one) for one in self._worker.running.values()}
        known = [running.pop(row.id, {}) or row_view(row, self.catalogue) for row in rows]
        return [*running.values(), *known][:limit]

    async def follow(self, id: str, after: int) -> AsyncIterator[tuple[str, int, dict[str, Any]]]:
        """The events of an operation, beginning with the one after `after`: (kind, seq, value).

        Kinds: "step", and at the end "done" with the operation itself; "" as a keepalive. Raises UnknownThing.
        """
        while True:
            changed = self._worker.changed
            shown = await self.operation(id)  # read before its events, so that none of its end is missed
            for row in await self.do(partial(RegistryReader.events, after=after, operation=id)):
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
        """For each model: the engine before, its overrides and reports, and the unfinished operation."""
        shown = await self.do(self._models)
        for model, running in self._worker.running.items():
            if model in shown and (running.is_behind or not running.state.is_done):
                shown[model]["operation"] = self._view(running)
        return shown

    async def standings(self) -> dict[str, dict[str, Any]]:
        """Each model as the registry has it; none while it does not answer."""
        with suppress(TimeoutError, StorageFailed):  # the latter is counted in the metrics
            async with asyncio.timeout(STANDINGS_SECONDS):
                return await self.do(self._models)
        return {}

    def _models(self, reader: RegistryReader) -> dict[str, dict[str, Any]]:
        active = overrides.active(reader, datetime.now(UTC))
        return {model: self._model(reader, model, active) for model in self._deps.config.models}

    def _model(self, reader: RegistryReader, model: str, active: Mapping[int, Override]) -> dict[str, Any]:
        config, catalogue = self._deps.config, self.catalogue
        live, previous = reader.alias(model, "live"), reader.alias(model, "previous")
        engine, before = (alias.engine if alias and alias.engine else "" for alias in (live, previous))
        engines = {engine, *map(catalogue.digest, config.models[model].engines)}
        artefacts = {one.artefact for one in reader.all(KnownEngine) if one.digest in engines}
        held = [(seq, one) for seq, one in active.items() if one.model == model]
        waived = overrides.waived_codes(active, model, engine)
        expected = config.gates.require is True or repository.has_reports(reader, model, artefacts)
        return {
            "previous": catalogue.name(before) or None,
            "gated": self._deps.pool.is_gated(catalogue.name(engine)),
            "since": live.since if live else None,
            "operation": None,
            "override": overrides.view(*held[-1], catalogue) if held else None,
            "overrides": len(held),
            "report_expected": expected,
            "override_ended": not repository.waived_for(reader, model, engine) <= waived,
        }
