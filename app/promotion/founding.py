"""What the registry is told at start: the configuration's engines, and who is live where nobody was.

The configuration says who serves a model until something was promoted; from then on the registry
does, as long as the configuration still has that engine as it was. Where it has not, the
configuration is heeded again, and the audit says so.
"""

from collections.abc import Mapping

from app.config.config import Config
from app.promotion.phases import Phase
from app.promotion.shelf import Shelf
from app.registry.errors import Conflict
from app.registry.registry import Registry
from app.registry.values import AliasMove, Entry, KnownArtefact, KnownEngine
from deploy.engine.spec import EngineSpec, spec_text
from gates.artefact.artefact import ArtefactError, folder_of, load
from gates.artefact.manifest import Artefact

ACTOR = "configuration"


def found(registry: Registry, config: Config, shelf: Shelf, at: str) -> Mapping[str, str]:
    """Write what is new; the digest of the engine that each model is served by. Raises StorageFailed."""
    for name, spec in config.engines.items():
        _know(registry, shelf.digest(name), spec, at)
    return {model: _live(registry, config, shelf, model, at) for model in config.models}


def _know(registry: Registry, digest: str, spec: EngineSpec, at: str) -> None:
    artefact = _manifest(spec)
    if artefact is not None:
        known = KnownArtefact(
            root=artefact.root,
            name=artefact.name,
            format=artefact.format,
            base_model=artefact.provenance.base_model,
            parents=dict(artefact.provenance.parents),
            created=artefact.created,
        )
        entry = Entry(at=at, actor=ACTOR, verb="artefact.known", subject=artefact.root)
        registry.add_artefact(known, entry)
    engine = KnownEngine(
        digest=digest, name=spec.name, artefact=artefact.root if artefact else None, spec=spec_text(spec)
    )
    try:
        registry.add_engine(engine, Entry(at=at, actor=ACTOR, verb="engine.known", subject=spec.name))
    except Conflict:
        # Its weights were replaced where they lie. The door weighs a candidate's own files again;
        # here it is only written down.
        _note_change(registry, engine, at)


def _note_change(registry: Registry, engine: KnownEngine, at: str) -> None:
    before = registry.engine(engine.digest)
    registry.note(
        Entry(
            at=at,
            actor=ACTOR,
            verb="engine.weights_changed",
            subject=engine.name,
            detail={"before": before.artefact if before else None, "now": engine.artefact},
        )
    )


def _manifest(spec: EngineSpec) -> Artefact | None:
    """The manifest beside the weights; None without a sound one, and then no report can be about it."""
    if spec.artefact is None:
        return None
    try:
        return load(folder_of(spec.artefact))
    except (ArtefactError, OSError):
        return None


def _live(registry: Registry, config: Config, shelf: Shelf, model: str, at: str) -> str:
    """Who serves a model, after `live` was set or put right where that is the configuration's to say."""
    alias, wanted = registry.alias(model, "live"), shelf.digest(config.models[model].live)
    if alias is None or alias.engine is None:
        return _set(registry, model, wanted, at, "live.founded")
    if registry.unfinished(model) is not None:
        return alias.engine  # its operation says what becomes of it
    if _was_promoted(registry, model) and alias.engine in shelf:
        return alias.engine
    if alias.engine != wanted:
        return _set(registry, model, wanted, at, "live.configured")
    return wanted


def _was_promoted(registry: Registry, model: str) -> bool:
    return any(op.model == model and op.phase == Phase.SUCCEEDED for op in registry.operations())


def _set(registry: Registry, model: str, engine: str, at: str, verb: str) -> str:
    moves = [AliasMove(model=model, name="live", engine=engine)]
    if registry.alias(model, "previous") is not None:
        moves.append(AliasMove(model=model, name="previous", engine=None))
    entry = Entry(at=at, actor=ACTOR, verb=verb, subject=model, detail={"engine": engine})
    registry.move(moves, entry)
    return engine
