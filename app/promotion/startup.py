"""The gateway's start: records the configuration, removes orphans, and starts the wanted engines.

Engines that run already are adopted. On shared memory two engines must not load at once, so containers and
processes that have to be started are loaded one after the other, live ones first. Embedded engines and those of the url
driver are all started at once.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from app.config.config import Config
from app.engines.backend import loggable
from app.engines.identity import manifest_of
from app.errors.tree import Refused
from app.promotion import repository
from app.promotion.spec_catalogue import SpecCatalogue, spec_of
from app.promotion.state_machine import OperationPhase, OperationState, reconcile
from app.promotion.steps import Dependencies
from app.registry.errors import Conflict
from app.registry.registry import Registry
from app.registry.values import AliasMove, AuditEntry, KnownArtefact, KnownEngine
from app.telemetry.log import Logger
from deploy.core.errors import DeployError
from deploy.core.tasks import supervise
from deploy.drivers import factory
from deploy.drivers.factory import FoundContainer
from deploy.engine.spec import EngineSpec, spec_digest, spec_text

HOLDER = "start"
"""The name under which a start holds the loading lease."""
LOAD_SECONDS = 1800.0
"""Seconds to wait for another process that loads an engine."""


class Startup:
    """One start. Call `begin` before the first request; loading continues in the background."""

    def __init__(self, deps: Dependencies, log: Logger) -> None:
        self._deps = deps
        self._log = log
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(
        self, live: Mapping[str, tuple[str, ...]], unfinished: Collection[OperationState]
    ) -> None:
        """`live` are the engines of each model, `unfinished` the operations as they were found."""
        models, catalogue = self._deps.config.models, self._deps.catalogue
        resident = {catalogue.digest(name) for model in models.values() for name in model.fallback}
        served = {engine for engines in live.values() for engine in engines}
        replicas = {engine for engines in live.values() for engine in engines[1:]}
        found = await self._found()
        running = {one.spec: one for one in found}
        orphans, starts = reconcile(
            {model: engines[0] for model, engines in live.items()}, unfinished, resident | replicas, running
        )
        for engine in orphans:
            await self._remove(running[engine])
        up = {one.spec for one in found if one.running}
        self._start(sorted(starts, key=lambda engine: engine not in served), up)

    def add(self, models: Iterable[str]) -> None:
        """Start the engines of models that came later."""
        pool = self._deps.pool
        names = {name for model in models for name in pool.model_route(model).engines} - pool.running()
        self._start([engine for engine, spec in self._deps.catalogue.items() if spec.name in names], ())

    def _start(self, engines: Iterable[str], up: Collection[str]) -> None:
        waiting = [engine for engine in engines if not self._start_now(engine, up)]
        if waiting:
            self._tasks.append(supervise(partial(self._load, waiting), "boot"))

    async def stop(self) -> None:
        """Stop loading; engines that were not loaded stay down."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _found(self) -> tuple[FoundContainer, ...]:
        try:
            return await factory.running(self._deps.catalogue.specs(), state_dir=self._deps.config.state_dir)
        except DeployError as error:
            self._log.error("engines_unknown", error=loggable(error))
            return ()

    async def _remove(self, orphan: FoundContainer) -> None:
        self._log.warning("orphan", engine=orphan.engine)
        try:
            await factory.remove(orphan)
        except DeployError as error:
            self._log.error("orphan_stays", engine=orphan.engine, error=loggable(error))

    def _start_now(self, engine: str, up: Collection[str]) -> bool:
        """Start an engine in the background; False: it has to wait for its turn to load."""
        spec = self._deps.catalogue.spec(engine)
        if spec.driver in ("docker", "process") and engine not in up:
            return False
        self._deps.pool.want(spec, self._model(spec.name))
        return True

    async def _load(self, waiting: list[str]) -> None:
        """Load one after the other; a failed one is not retried here."""
        while waiting:
            spec = self._deps.catalogue.spec(waiting.pop(0))
            try:
                async with self._deps.memory.lease.held(HOLDER, wait_s=LOAD_SECONDS):
                    await self._deps.pool.bring_up(spec, self._model(spec.name))
            except (DeployError, OSError) as error:
                # Its driver retries as long as it is wanted; the others do not wait for that.
                why = loggable(error) if isinstance(error, DeployError) else error.strerror
                self._log.error("engine_down", engine=spec.name, error=why)

    def _model(self, engine: str) -> str:
        """A model that the engine serves; any model if there is none."""
        models, pool = self._deps.config.models, self._deps.pool
        return next((name for name in models if engine in pool.model_route(name).engines), next(iter(models)))


# -------------------------------------------------------------------- the configuration

ACTOR = "configuration"
"""The actor in the audit for decisions of the configuration."""


def record_configuration(
    registry: Registry, config: Config, catalogue: SpecCatalogue, at: str
) -> Mapping[str, tuple[str, ...]]:
    """Record what is new in the configuration; the digests of each model's live engines.

    The configuration decides which engine is live until something was promoted; from then on the registry
    does, as long as the configuration still has that engine unchanged. If it has not, `[gates] require` decides: what
    was promoted is kept as it was, or the configuration decides again, and the audit says so. If the configuration
    lists replicas of that engine, they are live with it; if it does not name the engine, those that it was promoted with.

    Raises StorageFailed; Refused (live_not_gated): the model's engine may not serve, and no other is there.
    """
    record_engines(registry, config.engines, at)
    live = {model: _live_engine(registry, config, catalogue, model, at) for model in config.models}
    return {model: _with_replicas(registry, config, catalogue, model, live[model]) for model in live}


def _with_replicas(
    registry: Registry, config: Config, catalogue: SpecCatalogue, model: str, engine: str
) -> tuple[str, ...]:
    """Those of the configuration, if it names the engine; else those that it was promoted with, and are still known."""
    listed = tuple(map(catalogue.digest, config.models[model].live))
    if engine in listed:
        return listed
    replicas = repository.replicas_of(registry, model, engine)
    known = [one for replica in replicas if (one := registry.engine(replica))]
    for one in known:
        catalogue.add(one)
    return tuple(one.digest for one in known) or (engine,)


def bound_to_reports(
    gated: Collection[str], live: Iterable[tuple[str, ...]], roots: Mapping[str, str | None]
) -> frozenset[str]:
    """The replicas of engines that a report let in, as long as their weights are the same: it is about them, too."""
    return frozenset(
        engine
        for engines in live
        for engine in engines
        if any(one in gated and roots.get(one) == roots.get(engine) is not None for one in engines)
    )


def record_added(
    registry: Registry, config: Config, engines: Mapping[str, EngineSpec], models: Iterable[str], at: str
) -> Mapping[str, tuple[KnownEngine, ...]]:
    """Record engines and models that a reload adds; the live engines of these models, as `record_configuration` decides them."""
    record_engines(registry, engines, at)
    catalogue = SpecCatalogue(config.engines)
    found = {}
    for model in models:
        live = _with_replicas(
            registry, config, catalogue, model, _live_engine(registry, config, catalogue, model, at)
        )
        found[model] = tuple(known for engine in live if (known := registry.engine(engine)))
    return found


def record_engines(registry: Registry, engines: Mapping[str, EngineSpec], at: str) -> None:
    """Record these engines and their artefacts, if they are new. Raises StorageFailed."""
    for spec in engines.values():
        _record_engine(registry, spec_digest(spec), spec, at)


def _record_engine(registry: Registry, digest: str, spec: EngineSpec, at: str) -> None:
    artefact = manifest_of(spec)
    if artefact is not None:
        known = KnownArtefact(
            root=artefact.root,
            name=artefact.name,
            format=artefact.format,
            base_model=artefact.provenance.base_model,
            parents=dict(artefact.provenance.parents),
            created=artefact.created,
        )
        entry = AuditEntry(at=at, actor=ACTOR, verb="artefact.known", subject=artefact.root)
        registry.add(known, entry)
    engine = KnownEngine(
        digest=digest, name=spec.name, artefact=artefact.root if artefact else None, spec=spec_text(spec)
    )
    try:
        registry.add(engine, AuditEntry(at=at, actor=ACTOR, verb="engine.known", subject=spec.name))
    except Conflict:
        # Its weights were replaced in place. A promotion verifies the files again; here it is only recorded.
        before = registry.engine(engine.digest)
        detail = {"before": before.artefact if before else None, "now": engine.artefact}
        verb = "engine.weights_changed"
        registry.note(AuditEntry(at=at, actor=ACTOR, verb=verb, subject=engine.name, detail=detail))


def _live_engine(registry: Registry, config: Config, catalogue: SpecCatalogue, model: str, at: str) -> str:
    """The live engine of a model, the first of replicas, after the alias was set where the configuration decides."""
    alias, listed = registry.alias(model, "live"), [*map(catalogue.digest, config.models[model].live)]
    engine = alias.engine if alias else None
    if engine is not None:
        if registry.unfinished(model) is not None:
            return engine  # that operation decides
        promoted = any(
            op.model == model and op.phase == OperationPhase.SUCCEEDED for op in registry.operations()
        )
        if promoted and (engine in catalogue or _is_kept(registry, config, catalogue, model, engine)):
            return engine
    if config.gates.require:
        _check_gated(registry, config, catalogue, model)
    if engine in listed:
        return engine
    verb = "live.founded" if engine is None else "live.configured"
    return _set_live(registry, model, listed[0], at, verb)


def _is_kept(registry: Registry, config: Config, catalogue: SpecCatalogue, model: str, engine: str) -> bool:
    """Whether an engine that was promoted, and whose configuration has changed, continues to serve as promoted.

    If so, it is in the catalogue afterwards. Raises Refused if its weights are gone.
    """
    required = config.gates.require
    if required is None:
        required = repository.was_promoted_on_report(registry, model)
    listed = map(catalogue.digest, config.models[model].live)
    known = registry.engine(engine)
    gated = repository.gated(registry, current_roots(catalogue))
    if not required or known is None or not gated.isdisjoint(listed):
        return False
    spec = spec_of(known.spec)
    if spec.artefact is not None and not spec.artefact.exists():
        raise Refused(
            f"{model} was promoted to {spec.name}, and its weights are gone from {spec.artefact}: put them back; or "
            f"start with [gates] require = false, then: {_mend(config, model)}; or move {config.state_dir} away, "
            "to start without any history",
            "live_not_gated",
        )
    catalogue.add(known)
    return True


def _check_gated(registry: Registry, config: Config, catalogue: SpecCatalogue, model: str) -> None:
    """Raises Refused for a configured engine without a passing report, if there are reports about the model."""
    roots = current_roots(catalogue)
    engines = {catalogue.digest(name) for name in config.models[model].engines}
    artefacts = {root for engine in engines if (root := roots[engine])}
    live = [*map(catalogue.digest, config.models[model].live)]
    if repository.has_reports(registry, model, artefacts) and repository.gated(registry, roots).isdisjoint(
        live
    ):
        raise Refused(
            f"{model} has reports, and {', '.join(config.models[model].live)} was promoted on none of them: start with "
            f"[gates] require = false, then: {_mend(config, model)}",
            "live_not_gated",
        )


def _mend(config: Config, model: str) -> str:
    return f"manners promote {model} {config.models[model].live[0]} --report FILE"


def current_roots(catalogue: SpecCatalogue) -> dict[str, str | None]:
    """The root digest of every engine's weights, as their manifest states it now; by the engine's digest."""
    return {
        digest: artefact.root if (artefact := manifest_of(spec)) else None
        for digest, spec in catalogue.items()
    }


def _set_live(registry: Registry, model: str, engine: str, at: str, verb: str) -> str:
    moves = [AliasMove(model=model, name="live", engine=engine)]
    if registry.alias(model, "previous") is not None:
        moves.append(AliasMove(model=model, name="previous", engine=None))
    entry = AuditEntry(at=at, actor=ACTOR, verb=verb, subject=model, detail={"engine": engine})
    registry.move(moves, entry)
    return engine
