"""The promotion machine as a table: every pair, every way through, and every effect by name."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.promotion.state_machine import (
    ATTEMPTS,
    FINAL,
    SWITCHED,
    TABLE,
    Action,
    Begin,
    Breached,
    Cancel,
    EffectDone,
    EffectFailed,
    EffectRefused,
    FailureReason,
    IllegalOperationEvent,
    OperationEvent,
    OperationKind,
    OperationPhase,
    OperationPlan,
    OperationState,
    PlanError,
    Restart,
    Strategy,
    reconcile,
    step,
)
from app.promotion.steps import HANDLERS, TIMEOUTS
from app.registry.values import RouteChange
from gates.decode.decoder import encode, read

P = OperationPhase
FAULT = FailureReason("code", "message")
BLUE = OperationPlan(
    operation="op", kind=OperationKind.PROMOTE, model="annie", candidate="new", incumbent="old", previous="older",
    strategy=Strategy.BLUE_GREEN, generation=7, fallback="spare", resident=("spare",), report="sha256:r",
)  # fmt: skip
TIGHT = replace(BLUE, strategy=Strategy.STOP_THEN_START)
BACK = replace(BLUE, kind=OperationKind.ROLLBACK, report=None, previous="new")
SHARED = replace(BLUE, shift_weights=(5, 25))
PAIR = replace(BLUE, candidates=("new2",), incumbents=("old2",), strategy=Strategy.STOP_THEN_START)
PLANS = {"blue_green": BLUE, "stop_then_start": TIGHT, "rollback": BACK, "shifting": SHARED, "replicas": PAIR}


def at(phase: OperationPhase, plan: OperationPlan | None = None, cursor: int = 0) -> OperationState:
    """A machine in a phase, as it can be met."""
    plan = plan or (SHARED if phase is P.SHIFTING else BLUE)
    outcome = P.ROLLED_BACK if phase is P.ROLLING_BACK else None
    return OperationState(plan, phase, cursor, 0, outcome)


def event(kind: type, machine: OperationState) -> OperationEvent:
    """An event of a kind, about the machine's present effect."""
    key = machine.effect.key if machine.effect else "op/none"
    made: dict[type, OperationEvent] = {
        Begin: Begin(), EffectDone: EffectDone(key), EffectFailed: EffectFailed(key, FAULT), EffectRefused: EffectRefused(key, FAULT),
        Breached: Breached(FAULT), Cancel: Cancel("ann"), Restart: Restart(),
    }  # fmt: skip
    return made[kind]


# Every legal pair of a promotion side by side, and where it leads from the phase's first effect.
LEADS: list[tuple[OperationPhase, type, OperationPhase]] = [
    (P.QUEUED, Begin, P.PREFLIGHT), (P.QUEUED, Cancel, P.CANCELLED), (P.QUEUED, Restart, P.ROLLING_BACK),
    (P.PREFLIGHT, EffectDone, P.ADMITTED), (P.PREFLIGHT, EffectRefused, P.REJECTED), (P.PREFLIGHT, EffectFailed, P.FAILED),
    (P.PREFLIGHT, Cancel, P.CANCELLED), (P.PREFLIGHT, Restart, P.ROLLING_BACK),
    (P.ADMITTED, EffectDone, P.ADMITTED), (P.ADMITTED, EffectFailed, P.ROLLING_BACK), (P.ADMITTED, Cancel, P.ROLLING_BACK),
    (P.ADMITTED, Restart, P.ROLLING_BACK),
    (P.STARTING, EffectDone, P.HEALTHY), (P.STARTING, EffectFailed, P.ROLLING_BACK), (P.STARTING, Cancel, P.ROLLING_BACK),
    (P.STARTING, Restart, P.ROLLING_BACK),
    (P.HEALTHY, EffectDone, P.HEALTHY), (P.HEALTHY, EffectRefused, P.ROLLING_BACK), (P.HEALTHY, EffectFailed, P.ROLLING_BACK),
    (P.HEALTHY, Cancel, P.ROLLING_BACK), (P.HEALTHY, Restart, P.ROLLING_BACK),
    (P.WARMING, EffectDone, P.CANARY), (P.WARMING, EffectFailed, P.ROLLING_BACK), (P.WARMING, Cancel, P.ROLLING_BACK),
    (P.WARMING, Restart, P.ROLLING_BACK),
    (P.CANARY, EffectDone, P.CANARY), (P.CANARY, EffectRefused, P.ROLLING_BACK), (P.CANARY, EffectFailed, P.ROLLING_BACK),
    (P.CANARY, Cancel, P.ROLLING_BACK), (P.CANARY, Restart, P.ROLLING_BACK),
    (P.SHIFTING, EffectRefused, P.ROLLING_BACK), (P.SHIFTING, EffectDone, P.SHIFTING), (P.SHIFTING, EffectFailed, P.ROLLING_BACK), (P.SHIFTING, Breached, P.ROLLING_BACK),
    (P.SHIFTING, Cancel, P.ROLLING_BACK), (P.SHIFTING, Restart, P.ROLLING_BACK),
    (P.SWITCHING, EffectDone, P.DRAINING), (P.SWITCHING, EffectFailed, P.ROLLING_BACK), (P.SWITCHING, Restart, P.RESUMING),
    (P.SWITCHING, Breached, P.ROLLING_BACK), (P.RESUMING, Breached, P.ROLLING_BACK), (P.RETIRING, Breached, P.ROLLING_BACK),
    (P.RESUMING, EffectDone, P.RESUMING), (P.RESUMING, EffectFailed, P.ROLLING_BACK), (P.RESUMING, Restart, P.RESUMING),
    (P.DRAINING, EffectDone, P.BAKING), (P.DRAINING, EffectFailed, P.ROLLING_BACK), (P.DRAINING, Breached, P.ROLLING_BACK),
    (P.DRAINING, Restart, P.RESUMING),
    (P.BAKING, EffectDone, P.BAKING), (P.BAKING, EffectRefused, P.ROLLING_BACK), (P.BAKING, EffectFailed, P.ROLLING_BACK), (P.BAKING, Breached, P.ROLLING_BACK),
    (P.BAKING, Restart, P.RESUMING),
    (P.RETIRING, EffectDone, P.SUCCEEDED), (P.RETIRING, EffectFailed, P.RETIRING), (P.RETIRING, Restart, P.RESUMING),
    (P.ROLLING_BACK, EffectDone, P.ROLLING_BACK), (P.ROLLING_BACK, EffectFailed, P.ROLLING_BACK),
    (P.ROLLING_BACK, Restart, P.ROLLING_BACK),
]  # fmt: skip
LEGAL = {(phase, kind) for phase, kind, _ in LEADS}


def ready(phase: OperationPhase, kind: type) -> OperationState:
    """A machine in a phase; at a later effect where only that one can refuse."""
    later = {P.CANARY: 1, P.SHIFTING: 2, P.BAKING: 1}
    return at(phase, cursor=later.get(phase, 0) if kind is EffectRefused else 0)


@pytest.mark.parametrize(("before", "kind", "after"), LEADS)
def test_each_pair_leads_where_the_table_says(
    before: OperationPhase, kind: type, after: OperationPhase
) -> None:
    machine = ready(before, kind)
    found = step(machine, event(kind, machine))
    assert found.state.phase is after
    assert found.effect == found.state.effect
    assert (found.effect is None) == (after in FINAL)
    assert (found.state.outcome is not None) == (after is P.ROLLING_BACK)


@pytest.mark.parametrize(
    ("phase", "kind"), [p for p in product(OperationPhase, get_args(OperationEvent)) if p not in LEGAL]
)
def test_every_other_pair_raises(phase: OperationPhase, kind: type) -> None:
    machine = at(phase)
    with pytest.raises(IllegalOperationEvent, match=f"{kind.__name__} .*while {phase}"):
        step(machine, event(kind, machine))
    assert (phase, kind) not in TABLE


def test_only_the_present_effect_has_an_outcome_and_only_a_check_refuses() -> None:
    for kind in (EffectDone, EffectFailed, EffectRefused):
        with pytest.raises(IllegalOperationEvent):
            step(at(P.HEALTHY), event(kind, at(P.PREFLIGHT)))
    machine = at(P.CANARY)  # probe, identify
    with pytest.raises(IllegalOperationEvent, match="no check"):
        step(machine, event(EffectRefused, machine))


def walk(machine: OperationState) -> list[tuple[str, RouteChange | None]]:
    """The effects of an operation to which nothing bad happens, with the moves committed before them."""
    found = step(machine, Begin()) if machine.phase is P.QUEUED else step(machine, Restart())
    seen = []
    while found.effect:
        seen.append((found.effect.key.removeprefix("op/"), found.route_change))
        found = step(found.state, EffectDone(found.effect.key))
    seen.append((found.state.phase, found.route_change))
    return seen


WAYS = {
    "blue_green": [
        "preflight/check/new", "admitted/lease/new", "admitted/admit/new", "starting/start/new",
        "healthy/identify/new", "healthy/recheck/new", "warming/warm/new", "canary/probe/new", "canary/identify/new", "canary/recheck/new",
        "switching/route/new", "draining/drain/old", "baking/watch/new", "baking/recheck/new",
        "retiring/stop/old", "succeeded",
    ],
    "stop_then_start": [
        "preflight/check/new", "admitted/lease/new", "admitted/route/spare", "admitted/drain/old",
        "admitted/stop/old", "admitted/admit/new", "starting/start/new", "healthy/identify/new", "healthy/recheck/new", "warming/warm/new",
        "canary/probe/new", "canary/identify/new", "canary/recheck/new", "switching/route/new", "draining/drain/old",
        "baking/watch/new", "baking/recheck/new", "retiring/stop/old", "succeeded",
    ],
    "shifting": [
        "preflight/check/new", "admitted/lease/new", "admitted/admit/new", "starting/start/new",
        "healthy/identify/new", "healthy/recheck/new", "warming/warm/new", "canary/probe/new", "canary/identify/new", "canary/recheck/new",
        "shifting/share/new/5", "shifting/share/new/25", "shifting/recheck/new",
        "switching/route/new", "draining/drain/old", "baking/watch/new", "baking/recheck/new",
        "retiring/stop/old", "succeeded",
    ],
    "replicas": [
        "preflight/check/new", "preflight/check/new2", "admitted/lease/new", "admitted/route/spare", "admitted/drain/old",
        "admitted/drain/old2", "admitted/stop/old", "admitted/stop/old2", "admitted/admit/new", "starting/start/new",
        "starting/admit/new2", "starting/start/new2", "healthy/identify/new", "healthy/recheck/new", "healthy/identify/new2",
        "healthy/recheck/new2", "warming/warm/new", "warming/warm/new2", "canary/probe/new", "canary/identify/new",
        "canary/recheck/new", "canary/probe/new2", "canary/identify/new2", "canary/recheck/new2", "switching/route/new",
        "draining/drain/old", "draining/drain/old2", "baking/watch/new", "baking/recheck/new", "baking/recheck/new2",
        "retiring/stop/old", "retiring/stop/old2", "succeeded",
    ],
    "rollback": [
        "preflight/check/new", "admitted/lease/new", "admitted/admit/new", "starting/start/new",
        "healthy/identify/new", "healthy/recheck/new", "switching/route/new", "draining/drain/old",
        "retiring/stop/old", "succeeded",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_the_good_way_through(name: str) -> None:
    """Each effect in its order, and one move of the alias: with the commit that precedes the route."""
    way = walk(OperationState(PLANS[name]))
    assert [key for key, _ in way] == WAYS[name]
    previous = None if name == "rollback" else "old"
    moves = [(key, move) for key, move in way if move]
    assert moves == [("switching/route/new", RouteChange("annie", "new", previous, 7))]


UNDONE = {
    "blue_green": ["stop/new", "start/old", "route/old"],
    "stop_then_start": ["stop/new", "start/old", "route/old"],
    "shifting": ["start/old", "route/old", "drain/new", "stop/new"],
}
TAKEN_BACK = {
    "blue_green": ["start/old", "route/old", "drain/new", "stop/new"],
    "stop_then_start": ["route/spare", "drain/new", "stop/new", "start/old", "route/old"],
    "shifting": ["start/old", "route/old", "drain/new", "stop/new"],
}


@pytest.mark.parametrize("phase", [P.PREFLIGHT, P.ADMITTED, P.STARTING, P.HEALTHY, P.WARMING, P.CANARY])
@pytest.mark.parametrize("name", UNDONE)
def test_before_the_switch_it_is_undone_and_the_alias_stays(name: str, phase: OperationPhase) -> None:
    way = walk(at(phase, PLANS[name]))
    assert [key for key, _ in way] == [f"rolling_back/{key}" for key in UNDONE[name]] + ["failed"]
    assert not any(move for _, move in way)


@pytest.mark.parametrize("kind, undone, end", [
    (Breached, TAKEN_BACK["shifting"], P.ROLLED_BACK), (Cancel, UNDONE["shifting"], P.CANCELLED),
    (EffectFailed, UNDONE["shifting"], P.FAILED), (Restart, UNDONE["shifting"], P.FAILED),
])  # fmt: skip
@pytest.mark.parametrize("cursor", [0, 1])
def test_a_share_that_ends_badly_is_taken_back_before_the_candidate_is_stopped(
    kind: type, undone: list[str], end: OperationPhase, cursor: int
) -> None:
    """At each of its weights. The alias has not moved, and does not."""
    machine = at(P.SHIFTING, cursor=cursor)
    found = step(machine, event(kind, machine))
    assert found.route_change is None
    way, shown = [], found
    while shown.effect:
        way.append(shown.effect.key.removeprefix("op/rolling_back/"))
        shown = step(shown.state, EffectDone(shown.effect.key))
        assert shown.route_change is None
    assert (way, shown.state.phase) == (undone, end)


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        (P.SWITCHING, EffectFailed),
        (P.BAKING, EffectFailed),
        *((phase, Breached) for phase in sorted(SWITCHED)),
    ],
)
@pytest.mark.parametrize("name", TAKEN_BACK)
def test_after_the_switch_a_fault_takes_it_back_with_the_alias(
    name: str, phase: OperationPhase, kind: type
) -> None:
    machine = at(phase, PLANS[name])
    found = step(machine, event(kind, machine))
    assert found.route_change == RouteChange("annie", "old", "older", 8)
    way = [key for key, _ in walk(found.state)]
    assert way == [f"rolling_back/{key}" for key in TAKEN_BACK[name]] + ["rolled_back"]


@pytest.mark.parametrize("phase", sorted(SWITCHED))
def test_after_the_switch_a_restart_goes_forward_and_moves_nothing(phase: OperationPhase) -> None:
    way = walk(at(phase))
    assert [key for key, _ in way] == [
        "resuming/start/new", "resuming/route/new", "draining/drain/old",
        "baking/watch/new", "baking/recheck/new", "retiring/stop/old", "succeeded",
    ]  # fmt: skip
    assert not any(move for _, move in way)
    of_replicas = [key for key, _ in walk(at(phase, PAIR))]
    assert of_replicas[:3] == ["resuming/start/new", "resuming/start/new2", "resuming/route/new"]


@pytest.mark.parametrize("phase", [P.ROLLING_BACK, P.RETIRING])
def test_an_effect_that_keeps_failing_leaves_it_stuck(phase: OperationPhase) -> None:
    machine = at(phase)
    for _ in range(ATTEMPTS - 1):
        before = machine.effect
        machine = step(machine, event(EffectFailed, machine)).state
        assert (machine.phase, machine.effect) == (phase, before)
    assert step(machine, event(EffectFailed, machine)).state.phase is P.STUCK
    assert step(machine, event(EffectDone, machine)).state.tries == 0


def test_only_what_leads_back_or_watches_runs_before_its_state_is_written() -> None:
    ahead = {phase for phase in OperationPhase if at(phase).runs_ahead}
    assert ahead == {P.RESUMING, P.DRAINING, P.BAKING, P.ROLLING_BACK}
    assert at(P.STARTING, BACK).runs_ahead


def test_a_resident_engine_is_never_stopped() -> None:
    plan = replace(BLUE, resident=("old", "new", "spare"))
    for start in [OperationState(plan), at(P.CANARY, plan), at(P.ROLLING_BACK, plan)]:
        assert not [key for key, _ in walk(start) if f"/{Action.STOP}/" in key]


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"fallback": None, "strategy": Strategy.STOP_THEN_START}, "fallback"),
        ({"fallback": "old", "strategy": Strategy.STOP_THEN_START}, "fallback"),
        ({"resident": ("old",), "strategy": Strategy.STOP_THEN_START}, "has to stay"),
    ],
)
def test_a_plan_that_would_interrupt_service_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        replace(BLUE, **changes)  # type: ignore[arg-type]


@given(
    st.sampled_from(list(PLANS.values())), st.lists(st.sampled_from(get_args(OperationEvent)), max_size=60)
)
def test_whatever_happens_one_alias_move_forward_and_at_most_one_back(
    plan: OperationPlan, kinds: list[type]
) -> None:
    """And a state read back from its text is the same state."""
    machine, moves, keys = OperationState(plan), list[RouteChange](), set[str]()
    for kind in kinds:
        if (machine.phase, kind) not in TABLE:
            continue
        try:
            machine, move, effect = step(machine, event(kind, machine))
        except IllegalOperationEvent:
            assert kind is EffectRefused
            continue
        moves += [move] if move else []
        keys |= {effect.key} if effect else set()
        assert read(OperationState, encode(machine), "state") == machine
    assert [m.live for m in moves] == ["new", "old"][: len(moves)]
    assert [m.generation for m in moves] == [7, 8][: len(moves)]
    assert (machine.phase in SWITCHED or machine.phase is P.SUCCEEDED) <= (len(moves) == 1)


# What is brought about at start.

UNDER_WAY = OperationState(BLUE, P.WARMING)

CASES = {
    "nothing runs after a power cut": ({"annie": "old"}, [], ["spare"], [], ["start old", "start spare"]),
    "what runs and is wanted is adopted": ({"annie": "old"}, [], [], ["old"], ["start old"]),
    "an orphan goes first": ({"annie": "old"}, [], [], ["lost", "old"], ["stop lost", "start old"]),
    "an operation's engines and its model's route are left to it": ({"annie": "old"}, [UNDER_WAY], ["spare"], ["old", "new"], ["start spare"]),
    "a settled model does not wait for another's": (
        {"annie": "old", "bertha": "big"}, [UNDER_WAY], [], ["new", "lost"], ["stop lost", "start big"],
    ),
    "two models share an engine": ({"annie": "old", "bertha": "old"}, [], [], [], ["start old"]),
}  # fmt: skip


@pytest.mark.parametrize("live, unfinished, resident, running, expected", CASES.values(), ids=CASES.keys())
def test_what_is_brought_about(
    live: dict[str, str],
    unfinished: list[OperationState],
    resident: list[str],
    running: list[str],
    expected: list[str],
) -> None:
    stops, starts = reconcile(live, unfinished, resident, running)
    assert [*(f"stop {engine}" for engine in stops), *(f"start {engine}" for engine in starts)] == expected


def test_every_action_has_a_handler_and_all_but_three_a_timeout() -> None:
    assert HANDLERS.keys() == {*Action}
    assert {*Action} - TIMEOUTS.keys() == {Action.DRAIN, Action.SHARE, Action.WATCH}
