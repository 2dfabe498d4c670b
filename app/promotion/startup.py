"""The gateway's start: records the configuration, removes orphans, and starts the wanted engines.

Engines that run already are adopted. On shared memory two engines must not load at once, so containers and
processes that have to be started are loaded one after the other, live ones first. Embedded engines and those of the url
driver are all started at once.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from math import inf

from app.config.config import Config
from app.engines.backend import Backend, loggable
from app.engines.identity import manifest_of
from app.errors.tree import Refused
from app.promotion import repository
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import OperationPhase, OperationPlan
from app.promotion.steps import Dependencies
from app.registry.errors import Conflict
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KnownArtefact, KnownEngine, OperationRow, RouteChange
from app.telemetry.log import Logger
from deploy.core.errors import DeployError
from deploy.drivers import factory
from deploy.engine.spec import EngineSpec, spec_digest, spec_text

HOLDER = "start"
"""The name under which a start holds the loading lease."""
ACTOR = "configuration"
"""The actor in the audit for decisions of the configuration."""


def reconcile(
    live: Mapping[str, tuple[str, ...]],
    unfinished: Collection[OperationPlan],
    resident: Collection[str],
    running: Collection[str],
) -> tuple[list[str], list[str]]:
    """The engines to stop at a start, and those to start then. Pure.

    `live` are the engines of each model, `resident` those that always run (fallbacks), `running` those found running. A
    model with an unfinished operation is left to it. Engines that run and are not wanted are orphans: they are stopped
    first, since their memory may be needed. A running engine that is wanted is adopted.
    """
    busy = {plan.model for plan in unfinished}
    involved = {engine for plan in unfinished for engine in (*plan.new, *plan.old)}
    wanted = {*resident, *(one for model, engines in live.items() if model not in busy for one in engines)}
    return sorted({*running} - wanted - involved), sorted(wanted)


async def begin(
    deps: Dependencies,
    log: Logger,
    live: Mapping[str, tuple[str, ...]],
    unfinished: Collection[OperationPlan],
) -> list[EngineSpec]:
    """Stop orphans, and start the wanted engines. Returns those that `load` has to load.

    `live` are the engines of each model, `unfinished` the operations that a start found.
    """
    catalogue, config = deps.catalogue, deps.config
    resident = {catalogue.digest(name) for model in config.models.values() for name in model.fallback}
    served = {engine for engines in live.values() for engine in engines}
    try:
        found = await factory.running(tuple(catalogue.values()), state_dir=config.state_dir)
    except DeployError as error:
        log.error("engines_unknown", error=loggable(error))
        found = ()
    running = {one.spec: one for one in found}
    orphans, starts = reconcile(live, unfinished, resident, running)
    for orphan in (running[engine] for engine in orphans):
        log.warning("orphan", engine=orphan.engine)
        try:
            await factory.remove(orphan)
        except DeployError as error:
            log.error("orphan_stays", engine=orphan.engine, error=loggable(error))
    up = {one.spec for one in found if one.running}
    return start(deps, sorted(starts, key=lambda engine: engine not in served), up)


def start(deps: Dependencies, engines: Iterable[str], up: Collection[str] = ()) -> list[EngineSpec]:
    """Start engines in the background, but for containers and processes that do not run; those are returned, for `load`."""
    waiting = []
    for engine in engines:
        spec = deps.catalogue[engine]
        if spec.driver in ("docker", "process") and engine not in up:
            waiting.append(spec)
        else:
            _backend(deps, spec).want()
    return waiting


async def load(deps: Dependencies, log: Logger, waiting: list[EngineSpec]) -> None:
    """Load one after the other; a failed one is not retried here: its driver does that as long as it is wanted."""
    while waiting:
        spec = waiting.pop(0)
        try:
            async with deps.memory.lease.held(HOLDER, wait_s=inf):
                await _backend(deps, spec).up()
        except (DeployError, OSError) as error:
            why = loggable(error) if isinstance(error, DeployError) else error.strerror
            log.error("engine_down", engine=spec.name, error=why)


def _backend(deps: Dependencies, spec: EngineSpec) -> Backend:
    """The engine, with a model that it serves; any model if there is none."""
    models = deps.config.models
    serves = (name for name in models if spec.name in deps.pool.model_route(name).engines)
    return deps.pool.backend(spec, next(serves, next(iter(models))))


def record_configuration(
    registry: Registry, config: Config, catalogue: SpecCatalogue, at: str, models: Iterable[str] | None = None
) -> Mapping[str, tuple[KnownEngine, ...]]:
    """Record what is new in the configuration; the live engines of each model, or of these `models`.

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
) -> tuple[KnownEngine, ...]:
    """The live engine and its replicas; the alias is set where the configuration decides."""
    alias, settings, roots = registry.alias(model, "live"), config.models[model], current_roots(catalogue)
    engine, listed = alias.engine if alias else None, tuple(map(catalogue.digest, settings.live))
    listed_is_gated = not repository.gated(registry, roots).isdisjoint(listed)
    required = config.gates.require
    keeps = repository.was_promoted_on_report(registry, model) if required is None else required
    serves = str(engine) in catalogue or (keeps and not listed_is_gated)
    was_promoted = any(op.phase == OperationPhase.SUCCEEDED for op in registry.all(OperationRow, model=model))
    if engine is None or not (
        registry.find(OperationRow, model=model, done=False) or (was_promoted and serves)
    ):
        artefacts = {root for name in settings.engines if (root := roots[catalogue.digest(name)])}
        if required and not listed_is_gated and repository.has_reports(registry, model, artefacts):
            raise Refused(
                f"{model} has reports, and {', '.join(settings.live)} was promoted on none of them: start with [gates]"
                f" require = false, then: manners promote {model} {settings.live[0]} --report FILE",
                "live_not_gated",
            )
        if engine not in listed:
            change = RouteChange(model, listed[0], None, None)
            verb, detail = "live.configured" if engine else "live.founded", {"engine": listed[0]}
            registry.note(AuditEntry(at=at, actor=ACTOR, verb=verb, subject=model, detail=detail), change)
            engine = listed[0]
    digests = listed if engine in listed else repository.replicas_of(registry, model, engine)
    engines = tuple(known for digest in digests if (known := registry.find(KnownEngine, digest=digest)))
    for known in engines:
        catalogue.add(known)
    return engines


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
