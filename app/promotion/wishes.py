"""From what an operator asks to a plan: who serves now, who stays, and whether both fit into memory."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from app.config.config import Config
from app.errors.tree import BadField, Refused, UnknownModel
from app.promotion.plan import Kind, Plan, PlanError
from app.promotion.room import Room
from app.promotion.shelf import Shelf
from app.registry.errors import OperationUnderWay
from app.registry.reader import Reader
from app.registry.values import Alias, KnownEngine, Revocation
from gates.report.statement import digest_of


def now() -> str:
    """The time as the registry writes it: RFC 3339, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an operator asked for. `engine` is a name; None: back to the one that served before."""

    kind: Kind
    model: str
    engine: str | None = None
    report: str | None = None
    key: str | None = None

    @property
    def digest(self) -> str:
        """The same wish, the same digest; its key is not part of it."""
        return digest_of(
            {"kind": self.kind, "model": self.model, "engine": self.engine, "report": self.report}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the registry says of a model when something is to be done about it."""

    live: Alias
    previous: Alias | None
    others: tuple[str, ...]  # engines that other models are served by
    previous_engine: KnownEngine | None
    revocations: tuple[Revocation, ...]


def standing(reader: Reader, model: str) -> Standing:
    """Quick; for the registry's thread. Raises OperationUnderWay."""
    if under_way := reader.unfinished(model):
        raise OperationUnderWay(model, under_way.id)
    live, previous = reader.alias(model, "live"), reader.alias(model, "previous")
    assert live is not None  # written when the gateway first started
    lives = [alias for alias in reader.aliases() if alias.name == "live" and alias.model != model]
    before = reader.engine(previous.engine) if previous and previous.engine else None
    return Standing(
        live=live,
        previous=previous,
        others=tuple(alias.engine for alias in lives if alias.engine),
        previous_engine=before,
        revocations=reader.revocations(),
    )


def plan(wish: Wish, found: Standing, config: Config, shelf: Shelf, room: Room, up: Collection[str]) -> Plan:
    """`up` are the engines that run already. Reads headers of weights: for a thread.

    Raises:
        UnknownEngine, BadField
        Refused: already_live, no_previous, no_room.
    """
    candidate = _candidate(wish, found, config, shelf)
    assert found.live.engine is not None
    if candidate == found.live.engine:
        raise Refused(f"{wish.model} is served by {shelf.name(candidate)} already", "already_live")
    fallbacks = tuple(shelf.digest(name) for name in config.models[wish.model].fallback)
    spare = [name for name in fallbacks if name not in (candidate, found.live.engine)]
    everywhere = {shelf.digest(name) for model in config.models.values() for name in model.fallback}
    resident = tuple(sorted({*everywhere, *found.others}))
    try:
        return Plan(
            operation=_new_id(),
            kind=wish.kind,
            model=wish.model,
            candidate=candidate,
            incumbent=found.live.engine,
            strategy=room.strategy(shelf.spec(candidate), shelf.name(candidate) in up),
            generation=found.live.generation,
            previous=found.previous.engine if found.previous else None,
            fallback=spare[0] if spare else None,
            resident=resident,
            report=wish.report,
            bake_s=config.promotion.bake_seconds,
        )
    except PlanError as error:
        raise Refused(str(error), "no_room") from None


def _candidate(wish: Wish, found: Standing, config: Config, shelf: Shelf) -> str:
    if wish.engine is None:
        before = found.previous.engine if found.previous else None
        if before is None or found.previous_engine is None:
            raise Refused(f"{wish.model} was served by nobody else before; promote an engine", "no_previous")
        shelf.remember(found.previous_engine)
        return before
    digest = shelf.digest(wish.engine)
    kind = config.models[wish.model].kind
    if shelf.spec(digest).kind != kind:
        raise BadField(f"{wish.engine} is not for {kind}, and {wish.model} is", param="engine")
    return digest


def check_model(config: Config, model: str) -> None:
    """Raises UnknownModel."""
    if model not in config.models:
        known = ", ".join(sorted(config.models))
        raise UnknownModel(f"there is no model {model[:64]!r} here; there is: {known}")


def _new_id() -> str:
    return f"op-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def memory(plan: Plan, shelf: Shelf, room: Room, up: Collection[str]) -> Mapping[str, float | None]:
    """What a dry run says of the memory, in bytes; None: not known."""
    candidate, incumbent = shelf.spec(plan.candidate), shelf.spec(plan.incumbent)
    return room.account(candidate, candidate.name in up, plan.strategy, incumbent)
