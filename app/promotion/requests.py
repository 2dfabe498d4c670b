"""From an operator's request to a plan: who serves now, which engines stay, and whether both fit into memory."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from app.config.config import Config
from app.errors.tree import BadField, Refused, UnknownModel
from app.promotion.memory_admission import MemoryAdmission
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import OperationKind, OperationPlan, PlanError
from app.registry.errors import OperationUnderWay
from app.registry.reader import RegistryReader
from app.registry.values import Alias, KnownEngine
from gates.report.statement import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRequest:
    """What an operator asked for. `engine` is a name; None (a rollback): the engine that served before."""

    kind: OperationKind
    model: str
    engine: str | None = None
    report: str | None = None
    key: str | None = None

    @property
    def digest(self) -> str:
        """Equal requests have equal digests; the idempotency key is not part of it."""
        return digest_of(
            {"kind": self.kind, "model": self.model, "engine": self.engine, "report": self.report}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """What the registry says of a model at the time of a request."""

    live: Alias
    previous: Alias | None
    others: tuple[str, ...]  # engines that serve other models
    previous_engine: KnownEngine | None


def snapshot(reader: RegistryReader, model: str) -> ModelSnapshot:
    """Quick; for the registry's thread. Raises OperationUnderWay."""
    if under_way := reader.unfinished(model):
        raise OperationUnderWay(model, under_way.id)
    live, previous = reader.alias(model, "live"), reader.alias(model, "previous")
    assert live is not None  # written at the gateway's first start
    lives = [alias for alias in reader.aliases() if alias.name == "live" and alias.model != model]
    before = reader.engine(previous.engine) if previous and previous.engine else None
    return ModelSnapshot(
        live=live,
        previous=previous,
        others=tuple(alias.engine for alias in lives if alias.engine),
        previous_engine=before,
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

    Raises:
        UnknownEngine, BadField
        Refused: already_live, no_previous, no_room.
    """
    candidate = _candidate(request, found, config, catalogue)
    assert found.live.engine is not None
    if len(config.models[request.model].live) > 1:
        raise Refused(f"{request.model} has replicas, which are changed in the configuration", "has_replicas")
    if candidate == found.live.engine:
        raise Refused(f"{request.model} is served by {catalogue.name(candidate)} already", "already_live")
    fallbacks = tuple(catalogue.digest(name) for name in config.models[request.model].fallback)
    spare = [name for name in fallbacks if name not in (candidate, found.live.engine)]
    all_fallbacks = {catalogue.digest(name) for model in config.models.values() for name in model.fallback}
    resident = tuple(sorted({*all_fallbacks, *found.others}))
    try:
        return OperationPlan(
            operation=_new_id(),
            kind=request.kind,
            model=request.model,
            candidate=candidate,
            incumbent=found.live.engine,
            strategy=memory.strategy(catalogue.spec(candidate), catalogue.name(candidate) in up),
            generation=found.live.generation,
            previous=found.previous.engine if found.previous else None,
            fallback=spare[0] if spare else None,
            resident=resident,
            report=request.report,
            bake_s=config.promotion.bake_seconds,
        )
    except PlanError as error:
        raise Refused(str(error), "no_room") from None


def _candidate(
    request: PromotionRequest, found: ModelSnapshot, config: Config, catalogue: SpecCatalogue
) -> str:
    if request.engine is None:
        before = found.previous.engine if found.previous else None
        if before is None or found.previous_engine is None:
            raise Refused(
                f"{request.model} was served by nobody else before; promote an engine", "no_previous"
            )
        catalogue.add(found.previous_engine)
        return before
    digest = catalogue.digest(request.engine)
    kind = config.models[request.model].kind
    if catalogue.spec(digest).kind != kind:
        raise BadField(f"{request.engine} is not for {kind}, and {request.model} is", param="engine")
    return digest


def check_model(config: Config, model: str) -> None:
    """Raises UnknownModel."""
    if model not in config.models:
        known = ", ".join(sorted(config.models))
        raise UnknownModel(f"there is no model {model[:64]!r} here; there is: {known}")


def _new_id() -> str:
    return f"op-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def memory_account(
    plan: OperationPlan, catalogue: SpecCatalogue, memory: MemoryAdmission, up: Collection[str]
) -> Mapping[str, float | None]:
    """The memory figures of a dry run, in bytes; None: not known."""
    candidate, incumbent = catalogue.spec(plan.candidate), catalogue.spec(plan.incumbent)
    return memory.account(candidate, candidate.name in up, plan.strategy, incumbent)
