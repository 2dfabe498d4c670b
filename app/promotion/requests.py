"""From an operator's request to a plan: who serves now, which engines stay, and whether both fit into memory."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from app.config.config import Config
from app.config.replicas import replicas_fault
from app.errors.tree import BadField, Refused
from app.promotion import overrides
from app.promotion.memory_admission import MemoryAdmission
from app.promotion.overrides import Override
from app.promotion.repository import replicas_of
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import OperationKind, OperationPlan
from app.registry.registry import RegistryReader
from app.registry.values import Alias, KnownEngine, Revocation
from gates.report.statement import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRequest:
    """What an operator asked for."""

    kind: OperationKind
    model: str
    engine: str | None = None  # a name; None (a rollback): the engine that served before
    replicas: tuple[str, ...] = ()  # further engines that are to serve with it
    report: str | None = None
    key: str | None = None  # for idempotency

    @property
    def goes_back(self) -> bool:
        """Whether it is a rollback, which waits for nobody."""
        return self.kind is OperationKind.ROLLBACK

    @property
    def digest(self) -> str:
        """Equal requests have equal digests; the idempotency key is not part of it."""
        asked = {"kind": self.kind, "model": self.model, "engine": self.engine, "report": self.report}
        return digest_of({**asked, "replicas": list(self.replicas)} if self.replicas else asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """What the registry says of a model at the time of a request."""

    live: Alias
    previous: str | None
    others: tuple[str, ...]  # engines that serve other models
    serves: tuple[str, ...]  # the live engine and its replicas, as the registry has them
    before: tuple[KnownEngine, ...]  # the previous engine and its replicas
    engines: Mapping[str, KnownEngine]
    revocations: tuple[Revocation, ...]
    overrides: Mapping[int, Override]


def snapshot(reader: RegistryReader, model: str) -> ModelSnapshot:
    """Quick; for the registry's thread."""
    engines = {known.digest: known for known in reader.all(KnownEngine)}
    live, last = reader.alias(model, "live"), reader.alias(model, "previous")
    assert live is not None  # written at the gateway's first start
    lives = [alias for alias in reader.all(Alias, name="live") if alias.model != model]
    others = [replicas_of(reader, alias.model, alias.engine) for alias in lives if alias.engine]
    before = replicas_of(reader, model, last.engine) if last and last.engine else ()
    return ModelSnapshot(
        live=live,
        previous=last.engine if last else None,
        others=tuple(engine for engines in others for engine in engines),
        serves=replicas_of(reader, model, live.engine) if live.engine else (),
        before=tuple(engines[engine] for engine in before if engine in engines),
        engines=engines,
        revocations=reader.all(Revocation),
        overrides=overrides.active(reader, datetime.now(UTC)),
    )


def plan(
    request: PromotionRequest,
    found: ModelSnapshot,
    config: Config,
    catalogue: SpecCatalogue,
    memory: MemoryAdmission,
    up: Collection[str],
) -> OperationPlan:
    """The plan of a request; `up` are the engines that run already. Reads the weights' headers: for a thread.

    Raises UnknownThing, BadField; Refused: report_missing, already_live, no_previous, no_room.
    """
    model = config.models[request.model]
    new = _candidates(request, found, config, catalogue)
    assert found.live.engine is not None
    listed = tuple(map(catalogue.digest, model.live))
    old = listed if found.live.engine in listed else found.serves
    if both := [engine for engine in new if engine in old]:
        raise Refused(f"{request.model} is served by {catalogue.name(both[0])} already", "already_live")
    spare = [engine for engine in map(catalogue.digest, model.fallback) if engine not in (*new, *old)]
    every_fallback = {catalogue.digest(name) for one in config.models.values() for name in one.fallback}
    others = [one for name, one in config.models.items() if name != request.model]
    shared = {catalogue.digest(name) for one in others for name in one.live}
    resident = tuple(sorted({*every_fallback, *found.others, *(shared & {*new, *old})}))
    return OperationPlan(
        operation=f"op-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}",
        kind=request.kind,
        model=request.model,
        candidate=new[0],
        candidates=new[1:],
        incumbent=found.live.engine,
        incumbents=tuple(engine for engine in old if engine != found.live.engine),
        strategy=memory.strategy([it for it in map(catalogue.__getitem__, new) if it.name not in up]),
        generation=found.live.generation,
        previous=found.previous,
        fallback=spare[0] if spare else None,
        resident=resident,
        report=request.report,
        bake_s=config.promotion.bake_seconds,
        shift_weights=config.promotion.shift_weights,
        shift_s=config.promotion.shift_seconds,
    )


def _candidates(
    request: PromotionRequest, found: ModelSnapshot, config: Config, catalogue: SpecCatalogue
) -> tuple[str, ...]:
    """The engine that was asked for, or the one that served before, and its replicas, by digest."""
    model = config.models[request.model]
    if request.engine is not None:
        digests = tuple(map(catalogue.digest, (request.engine, *request.replicas)))
        specs = [catalogue[digest] for digest in digests]
        if bad := next((spec.name for spec in specs if spec.kind != model.kind), None):
            raise BadField(f"{bad} is not for {model.kind}, and {request.model} is", param="engine")
        if fault := replicas_fault(specs):
            raise BadField(fault, param="engine")
        waived = overrides.waived_codes(found.overrides, request.model, digests[0])
        if request.report is None and "report_missing" not in waived:
            raise Refused("no report was named; upload one to /admin/reports", "report_missing")
        return digests
    if found.previous is None or not found.before:
        raise Refused(f"{request.model} was served by no other engine before; promote one", "no_previous")
    listed = tuple(map(catalogue.digest, model.live))
    if found.previous in listed:
        return (found.previous, *(engine for engine in listed if engine != found.previous))
    for known in found.before:
        catalogue.add(known)
    return tuple(known.digest for known in found.before)
