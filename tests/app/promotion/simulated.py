"""A gateway and its engines, simulated: a real registry, effects on a small world, and sudden death.

A set of replicas goes by the name of its first: a, a2, a3 by `a`.

`Gateway.life` is a generator that yields before and after every commit and every effect; to kill the
gateway is to drop it there. It runs operations as a runner has to: commit, effect, outcome.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from app.promotion import repository
from app.promotion.startup import reconcile
from app.promotion.state_machine import (
    Action,
    Effect,
    FailureReason,
    OperationEvent,
    OperationKind,
    OperationPlan,
    OperationState,
    step,
)
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KnownEngine, OperationRow, RouteChange

SPARE = "spare"
NOW = "2026-11-21T06:00:00Z"
FAULT = FailureReason("simulated", "it was told to")
CHECKS = {Action.CHECK, Action.RECHECK, Action.IDENTIFY}


def members(first: str, count: int) -> tuple[str, ...]:
    """The replicas of a set; the fallback is alone."""
    return (first, *(f"{first}{number}" for number in range(2, count + 1) if first != SPARE))


class Failure(Exception):
    """An effect was told to fail; `refusal`: it is a check that says no."""

    def __init__(self, refusal: bool) -> None:
        self.refusal = refusal


@dataclass
class World:
    """Engines that run, and where new requests go; `room` is for sets of `count` engines beside the fallback."""

    room: int
    outlive: bool  # engines run on when the gateway dies: containers do, children do not
    count: int = 1
    running: set[str] = field(default_factory=set)
    route: str | None = None
    shared: str | None = None  # a candidate that gets a share of the requests
    lease: str | None = None
    trouble: list[str] = field(
        default_factory=list
    )  # of the effects to come: "fail", "refuse", "half" or "ok"

    @property
    def serving(self) -> set[str]:
        """The engines that new requests go to."""
        found = {self.shared} if self.shared else set()
        return found | {*members(self.route, self.count)} if self.route else found

    def apply(self, effect: Effect, operation: str) -> None:
        """Bring it about; refuse what would be heard by somebody."""
        trouble = self.trouble.pop(0) if self.trouble else "ok"
        if trouble == "refuse" and effect.action in CHECKS:
            raise Failure(refusal=True)
        if trouble == "fail":
            raise Failure(refusal=False)
        getattr(self, f"_{effect.action}", lambda *_: None)(effect.engine, operation)
        if trouble == "half":
            raise Failure(refusal=False)  # it was brought about, and nobody was told

    def _lease(self, engine: str, operation: str) -> None:
        assert self.lease in (None, operation)
        self.lease = operation

    def _start(self, engine: str, operation: str) -> None:
        self.running.add(engine)
        self.lease = None
        beside = self.running - {SPARE}
        assert len(beside) <= self.room * self.count, f"no memory for {engine} beside {self.running}"

    def _route(self, engine: str, operation: str) -> None:
        down = {*members(engine, self.count)} - self.running
        assert not down, f"new requests would go to {down}, which do not run"
        self.route, self.shared = engine, None

    def _share(self, engine: str, operation: str) -> None:
        assert engine in self.running and self.route in self.running - {engine}, "nobody serves beside it"
        self.shared = engine

    def _drain(self, engine: str, operation: str) -> None:
        assert engine not in self.serving, f"{engine} would never drain: new requests go there"

    def _stop(self, engine: str, operation: str) -> None:
        assert engine not in self.serving, f"{engine} would be stopped while it serves"
        self.running.discard(engine)

    def die(self) -> None:
        """The gateway was killed."""
        self.route = self.shared = self.lease = None
        if not self.outlive:
            self.running.clear()


class Gateway:
    """The gateway's lives, one after the other, over one registry file."""

    def __init__(self, path: Path, world: World) -> None:
        self.world = world
        self.path = path
        self.registry = Registry(path)
        self.inbox: list[OperationEvent] = []
        self.life: Iterator[str] = iter(())
        if self.registry.alias("annie", "live") is None:
            self._found()

    def _found(self) -> None:
        entry = AuditEntry(at=NOW, actor="test", verb="found", subject="annie")
        for name in (*self.set_of("a"), *self.set_of("b"), *self.set_of("c"), SPARE):
            self.registry.add(KnownEngine(digest=name, name=name, artefact=None, spec="{}"), entry)
        self.registry.note(entry, RouteChange("annie", "a", None, None))

    @property
    def live(self) -> str:
        """Where the alias points."""
        alias = self.registry.alias("annie", "live")
        assert alias is not None and alias.engine is not None
        return alias.engine

    def set_of(self, first: str) -> tuple[str, ...]:
        """The engines of a set."""
        return members(first, self.world.count)

    def plan(self, kind: OperationKind, candidate: str) -> OperationPlan:
        """An operation as the gateway stands."""
        live, previous = self.registry.alias("annie", "live"), self.registry.alias("annie", "previous")
        assert live is not None
        return OperationPlan(
            operation=f"op{self.registry.head().seq}", kind=kind, model="annie", candidate=candidate, incumbent=self.live,
            candidates=self.set_of(candidate)[1:], incumbents=self.set_of(self.live)[1:],
            strategy="blue_green" if self.world.room > 1 else "stop_then_start",
            generation=live.generation, previous=previous.engine if previous else None, fallback=SPARE,
            resident=(SPARE,), report="r" if kind is OperationKind.PROMOTE else None, shift_weights=(5, 50),
        )  # fmt: skip

    def begin(self, plan: OperationPlan) -> None:
        """Queue it and be ready to run it."""
        repository.begin(self.registry, plan, at=NOW, actor="test")
        self.life = self._drive(OperationState(plan), OperationEvent.BEGIN)

    def boot(self) -> None:
        """Come up, as after a death."""
        self.registry.close()
        self.world.die()
        self.inbox.clear()
        self.registry = Registry(self.path)
        self.life = self._come_up()

    def _come_up(self) -> Iterator[str]:
        found = [*map(repository.state_of, self.registry.all(OperationRow, done=False))]
        live = {"annie": self.set_of(self.live)}
        orphans, starts = reconcile(live, [one.plan for one in found], {SPARE}, self.world.running)
        todo = ((Action.STOP, orphans), (Action.START, starts), (Action.ROUTE, [] if found else [self.live]))
        effects = [
            Effect(f"start/{action}/{one}", action, one) for action, engines in todo for one in engines
        ]
        for effect in effects:
            yield f"before {effect.key}"
            self.world.trouble.clear()
            self.world.apply(effect, "start")
        for machine in found:
            yield from self._drive(machine, OperationEvent.RESTART)

    def _drive(self, before: OperationState, event: OperationEvent) -> Iterator[str]:
        while True:
            after = step(before, event, FAULT)
            yield "before the commit"
            repository.commit(self.registry, before, event, after, FAULT, at=NOW, actor="test")
            yield "after the commit"
            before = after.state
            if before.effect is None:
                return
            event = self._mail(before) or self._outcome(before.effect, before.plan.operation)
            yield f"after {before.effect.key}"

    def _mail(self, machine: OperationState) -> OperationEvent | None:
        """What came from outside, if it is legal now."""
        came, self.inbox = self.inbox, []
        return next(filter(machine.takes, came), None)

    def _outcome(self, effect: Effect, operation: str) -> OperationEvent:
        try:
            self.world.apply(effect, operation)
        except Failure as failure:
            return OperationEvent.REFUSED if failure.refusal else OperationEvent.FAILED
        return OperationEvent.DONE

    def run(self, points: int | None = None) -> bool:
        """Live on for so many points, or to the end. Whether it came to the end."""
        for _ in range(points) if points is not None else count():
            if next(self.life, None) is None:
                return True
            self.check_nobody_is_lost()
        return False

    def check_nobody_is_lost(self) -> None:
        """Requests go to engines that run."""
        assert self.world.serving <= self.world.running

    def check_all_is_well(self) -> None:
        """One live route, to the set of the alias, which runs; no orphan; the chain is whole."""
        assert not self.registry.all(OperationRow, done=False)
        assert (self.world.route, self.world.shared) == (self.live, None)
        assert self.world.running == {*self.set_of(self.live), SPARE}
        self.registry.verify_chain()
