"""The gateway's start: records the configuration, removes orphans, and starts the wanted engines.

Engines that run already are adopted. On shared memory two engines must not load at once, so containers and
processes that have to be started are loaded one after the other, live ones first. Embedded engines and those of the url
driver are all started at once.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from app.config.config import Config
from app.engines.backend import loggable
from app.engines.identity import manifest_of
from app.errors.tree import Refused
from app.promotion import repository
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import OperationPhase, OperationState, reconcile
from app.promotion.steps import Dependencies
from app.registry.errors import Conflict
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KnownArtefact, KnownEngine, OperationRow, RouteChange
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
            return await factory.running(
                tuple(self._deps.catalogue.values()), state_dir=self._deps.config.state_dir
            )
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
        spec = self._deps.catalogue[engine]
        if spec.driver in ("docker", "process") and engine not in up:
            return False
        self._deps.pool.backend(spec, self._model(spec.name)).want()
        return True

    async def _load(self, waiting: list[str]) -> None:
        """Load one after the other; a failed one is not retried here."""
        while waiting:
            spec = self._deps.catalogue[waiting.pop(0)]
            try:
                async with self._deps.memory.lease.held(HOLDER, wait_s=LOAD_SECONDS):
                    await self._deps.pool.backend(spec, self._model(spec.name)).up()
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
    registry: Registry, config: Config, catalogue: SpecCatalogue, at: str, models: Iterable[str] | None = None
) -> Mapping[str, tuple[str, ...]]:
    """Record what is new in the configuration; the digests of the live engines of each model, or of these `models`.

    The configuration decides which engine is live until something was promoted; from then on the registry
    does, as long as the configuration still has that engine unchanged. If it has not, `[gates] require` decides: what
    was promoted is kept as it was, or the configuration decides again, and the audit says so. If the configuration
    lists replicas of that engine, they are live with it; if it does not name the engine, those that it was promoted with.
    The catalogue then has every live engine.

    Raises StorageFailed; Refused (live_not_gated): the model's engine may not serve, and no other is there.
    """
    for spec in config.engines.values():
        _record_engine(registry, spec_digest(spec), spec, at)
    wanted = config.models if models is None else models
    return {model: _live_engines(registry, config, catalogue, at, model) for model in wanted}


def _live_engines(
    registry: Registry, config: Config, catalogue: SpecCatalogue, at: str, model: str
) -> tuple[str, ...]:
    """The live engine and its replicas, by digest; the alias is set where the configuration decides."""
    alias, listed = registry.alias(model, "live"), tuple(map(catalogue.digest, config.models[model].live))
    engine = alias.engine if alias else None
    listed_is_gated = not repository.gated(registry, current_roots(catalogue)).isdisjoint(listed)
    if engine is None or not _registry_decides(registry, config, catalogue, model, engine, listed_is_gated):
        if config.gates.require and not listed_is_gated:
            _check_gated(registry, config, catalogue, model)
        if engine not in listed:
            change = RouteChange(model, live=listed[0], previous=None, generation=None)
            verb, detail = "live.configured" if engine else "live.founded", {"engine": listed[0]}
            registry.move(change, AuditEntry(at=at, actor=ACTOR, verb=verb, subject=model, detail=detail))
            engine = listed[0]
    if engine in listed:
        return listed
    replicas = repository.replicas_of(registry, model, engine)
    known = [one for replica in replicas if (one := registry.find(KnownEngine, digest=replica))]
    for one in known:
        catalogue.add(one)
    return tuple(one.digest for one in known)


def _registry_decides(
    registry: Registry,
    config: Config,
    catalogue: SpecCatalogue,
    model: str,
    engine: str,
    listed_is_gated: bool,
) -> bool:
    """Whether the engine of the alias serves: an operation is under way, or it was promoted, and is configured or kept."""
    if registry.find(OperationRow, model=model, done=False) is not None:
        return True
    if not registry.all(OperationRow, model=model, phase=OperationPhase.SUCCEEDED):
        return False
    required = config.gates.require
    if required is None:
        required = repository.was_promoted_on_report(registry, model)
    return engine in catalogue or (required and not listed_is_gated)


def _check_gated(registry: Registry, config: Config, catalogue: SpecCatalogue, model: str) -> None:
    """Raises Refused for a configured engine without a passing report, if there are reports about the model."""
    roots, settings = current_roots(catalogue), config.models[model]
    artefacts = {root for name in settings.engines if (root := roots[catalogue.digest(name)])}
    if repository.has_reports(registry, model, artefacts):
        raise Refused(
            f"{model} has reports, and {', '.join(settings.live)} was promoted on none of them: start with [gates] "
            f"require = false, then: manners promote {model} {settings.live[0]} --report FILE",
            "live_not_gated",
        )


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
    with suppress(Conflict):  # its weights were replaced in place: a promotion verifies the files again
        registry.add(engine, AuditEntry(at=at, actor=ACTOR, verb="engine.known", subject=spec.name))


def current_roots(catalogue: SpecCatalogue) -> dict[str, str | None]:
    """The root digest of every engine's weights, as their manifest states it now; by the engine's digest."""
    return {
        digest: artefact.root if (artefact := manifest_of(spec)) else None
        for digest, spec in catalogue.items()
    }
