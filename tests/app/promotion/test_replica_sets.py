"""Replicas are one set: whatever fails and wherever the gateway stops, one whole set serves in the end."""

from dataclasses import dataclass, field
from itertools import product

import pytest

from app.promotion.state_machine import (
    Action,
    Begin,
    Breached,
    Effect,
    EffectDone,
    EffectFailed,
    EffectRefused,
    FailureReason,
    OperationKind,
    OperationPhase,
    OperationPlan,
    OperationState,
    Restart,
    Strategy,
    Transition,
    path,
    step,
)

WRONG = FailureReason("wrong", "it went wrong")
TRIED = (
    Action.ADMIT, Action.START, Action.IDENTIFY, Action.RECHECK, Action.WARM, Action.PROBE, Action.IDENTIFY, Action.RECHECK,
)  # fmt: skip
"""What is done to every new replica before it serves, in this order."""
SIZES = [*product((1, 2, 3), (1, 2, 3))]


def plan_of(
    old: int, new: int, strategy: Strategy, kind: OperationKind = OperationKind.PROMOTE
) -> OperationPlan:
    olds, news = [f"old{n}" for n in range(old)], [f"new{n}" for n in range(new)]
    return OperationPlan(
        operation="op", kind=kind, model="annie", candidate=news[0], candidates=tuple(news[1:]), incumbent=olds[0],
        incumbents=tuple(olds[1:]), strategy=strategy, generation=1, fallback="spare",
        resident=("spare",), report="r", shift_weights=(5, 50),
    )  # fmt: skip


@dataclass
class World:
    """What runs and what serves, as the handlers bring it about."""

    plan: OperationPlan
    live: list[str] = field(default_factory=list)
    runs: set[str] = field(default_factory=set)
    fewest: int = 99  # old or new replicas that served at once
    most_running: int = 0
    alias: str = ""
    shared: str | None = None  # a candidate that gets a share of the requests

    def __post_init__(self) -> None:
        self.live, self.runs, self.alias = list(self.plan.old), {*self.plan.old, "spare"}, self.plan.incumbent

    def do(self, effect: Effect) -> None:
        engine, plan = effect.engine, self.plan
        match effect.action:
            case Action.START:
                self.runs.add(engine)
            case Action.SHARE:
                assert engine in self.runs and {*self.live} & self.runs
                self.shared = engine
            case Action.DRAIN:
                assert engine != self.shared, f"{engine} would never drain"
            case Action.STOP:
                assert engine != self.shared, f"{engine} would be stopped while it serves"
                if engine not in self.live:
                    self.runs.discard(engine)
            case Action.ROUTE:
                self.shared = None
                self.runs.add(engine)
                self.live = list({plan.candidate: plan.new, plan.incumbent: plan.old}.get(engine, (engine,)))
        self.fewest = min(self.fewest, len({*self.live} & self.runs))
        self.most_running = max(self.most_running, len(self.runs - {"spare"}))

    def take(self, transition: Transition) -> None:
        if transition.route_change is not None:
            self.alias = transition.route_change.live


def run(world: World, present: Transition, stop: int = -1) -> tuple[Transition, list[Effect]]:
    """Effects one after the other, to the end or to the one of this number, which is not run."""
    done: list[Effect] = []
    world.take(present)
    while present.effect is not None and len(done) != stop:
        world.do(present.effect)
        done.append(present.effect)
        present = step(present.state, EffectDone(present.effect.key))
        world.take(present)
    return present, done


def begun(plan: OperationPlan) -> Transition:
    return step(OperationState(plan), Begin())


def settled(world: World, engines: tuple[str, ...]) -> None:
    """These serve and run, and no others but the fallback."""
    assert sorted(world.live) == sorted(engines)
    assert world.runs == {*engines, "spare"}
    assert world.alias == engines[0]
    assert world.shared is None


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("old, new", SIZES)
def test_the_new_set_takes_the_place_of_the_old(old: int, new: int, strategy: Strategy) -> None:
    plan = plan_of(old, new, strategy)
    world = World(plan)
    ended, done = run(world, begun(plan))
    assert ended.state.phase is OperationPhase.SUCCEEDED
    settled(world, plan.new)
    assert len({effect.key for effect in done}) == len(done)
    switch = next(at for at, effect in enumerate(done) if "/switching/" in effect.key)
    for engine in plan.new:
        its = [effect.action for effect in done[:switch] if effect.engine == engine]
        once = [action for action in its if action in TRIED]
        assert its[0] is Action.CHECK
        assert once[: len(TRIED)] == [*TRIED]
    assert world.fewest >= (min(old, new) if strategy is Strategy.BLUE_GREEN else 1)
    if strategy is Strategy.STOP_THEN_START:
        assert world.most_running <= max(old, new), "there is memory for so many and no more"


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("old, new", SIZES)
def test_whatever_fails_the_old_set_serves_again(old: int, new: int, strategy: Strategy) -> None:
    plan = plan_of(old, new, strategy)
    _, all_effects = run(World(plan), begun(plan))
    for number, failing in enumerate(all_effects):
        world = World(plan)
        present, _ = run(world, begun(plan), stop=number)
        if present.state.phase is OperationPhase.RETIRING:
            break  # from here on it only goes forward
        kind = EffectRefused if failing.action is Action.IDENTIFY else EffectFailed
        world.fewest = 99
        ended, undone = run(world, step(present.state, kind(failing.key, WRONG)))
        assert len({effect.key for effect in undone}) == len(undone)
        assert ended.state.phase in (
            OperationPhase.FAILED,
            OperationPhase.REJECTED,
            OperationPhase.ROLLED_BACK,
        )
        settled(world, plan.old)
        assert world.fewest > 0, f"nobody served while {failing.key} was undone"


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("old, new", SIZES)
def test_wherever_the_gateway_stops_one_whole_set_serves_afterwards(
    old: int, new: int, strategy: Strategy
) -> None:
    plan = plan_of(old, new, strategy)
    _, all_effects = run(World(plan), begun(plan))
    for number in range(len(all_effects)):
        world = World(plan)
        present, _ = run(world, begun(plan), stop=number)
        world.runs, world.shared = {"spare"}, None  # every engine ended with the gateway
        world.live = list(plan.old if world.alias == plan.incumbent else plan.new)
        ended, _ = run(world, step(present.state, Restart()))
        succeeded = ended.state.phase is OperationPhase.SUCCEEDED
        settled(world, plan.new if succeeded else plan.old)


SERVES = [
    (plan, phase)
    for plan in (plan_of(count, count, strategy) for count in (1, 3) for strategy in Strategy)
    for phase in ("shifting", "draining", "baking")
    if phase in path(plan)
]


@pytest.mark.parametrize("plan, phase", SERVES)
def test_an_operator_may_turn_it_back(plan: OperationPlan, phase: str) -> None:
    world, present = World(plan), begun(plan)
    while present.state.phase != phase:
        present, _ = run(world, present, stop=1)
    ended, _ = run(world, step(present.state, Breached(WRONG)))
    assert ended.state.phase is OperationPhase.ROLLED_BACK
    settled(world, plan.old)


def test_a_rollback_of_replicas_is_neither_warmed_nor_watched() -> None:
    plan = plan_of(2, 2, Strategy.BLUE_GREEN, OperationKind.ROLLBACK)
    world = World(plan)
    ended, done = run(world, begun(plan))
    assert ended.state.phase is OperationPhase.SUCCEEDED
    settled(world, plan.new)
    assert not {Action.WARM, Action.PROBE, Action.SHARE, Action.WATCH} & {effect.action for effect in done}
