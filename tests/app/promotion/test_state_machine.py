"""The promotion machine as a table: every pair, every way through, and every effect by name."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.promotion.startup import reconcile
from app.promotion.state_machine import (
    ATTEMPTS,
    FINAL,
    SWITCHED,
    Action,
    FailureReason,
    IllegalOperationEvent,
    OperationEvent,
    OperationKind,
    OperationPhase,
    OperationPlan,
    OperationState,
    PlanError,
    Strategy,
    step,
)
from app.promotion.steps import HANDLERS, TIMEOUTS
from app.registry.values import RouteChange
from gates.decode.decoder import encode, read

P, E = OperationPhase, OperationEvent
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


# Every legal pair of a promotion side by side, and where it leads from the phase's first effect.
LEADS: list[tuple[OperationPhase, OperationEvent, OperationPhase]] = [
    (P.QUEUED, E.BEGIN, P.PREFLIGHT), (P.QUEUED, E.CANCEL, P.CANCELLED), (P.QUEUED, E.RESTART, P.ROLLING_BACK),
    (P.PREFLIGHT, E.DONE, P.ADMITTED), (P.PREFLIGHT, E.REFUSED, P.REJECTED), (P.PREFLIGHT, E.FAILED, P.FAILED),
    (P.PREFLIGHT, E.CANCEL, P.CANCELLED), (P.PREFLIGHT, E.RESTART, P.ROLLING_BACK),
    (P.ADMITTED, E.DONE, P.ADMITTED), (P.ADMITTED, E.FAILED, P.ROLLING_BACK), (P.ADMITTED, E.CANCEL, P.ROLLING_BACK),
    (P.ADMITTED, E.RESTART, P.ROLLING_BACK),
    (P.STARTING, E.DONE, P.HEALTHY), (P.STARTING, E.FAILED, P.ROLLING_BACK), (P.STARTING, E.CANCEL, P.ROLLING_BACK),
    (P.STARTING, E.RESTART, P.ROLLING_BACK),
    (P.HEALTHY, E.DONE, P.HEALTHY), (P.HEALTHY, E.REFUSED, P.ROLLING_BACK), (P.HEALTHY, E.FAILED, P.ROLLING_BACK),
    (P.HEALTHY, E.CANCEL, P.ROLLING_BACK), (P.HEALTHY, E.RESTART, P.ROLLING_BACK),
    (P.WARMING, E.DONE, P.CANARY), (P.WARMING, E.FAILED, P.ROLLING_BACK), (P.WARMING, E.CANCEL, P.ROLLING_BACK),
    (P.WARMING, E.RESTART, P.ROLLING_BACK),
    (P.CANARY, E.DONE, P.CANARY), (P.CANARY, E.REFUSED, P.ROLLING_BACK), (P.CANARY, E.FAILED, P.ROLLING_BACK),
    (P.CANARY, E.CANCEL, P.ROLLING_BACK), (P.CANARY, E.RESTART, P.ROLLING_BACK),
    (P.SHIFTING, E.REFUSED, P.ROLLING_BACK), (P.SHIFTING, E.DONE, P.SHIFTING), (P.SHIFTING, E.FAILED, P.ROLLING_BACK), (P.SHIFTING, E.BREACHED, P.ROLLING_BACK),
    (P.SHIFTING, E.CANCEL, P.ROLLING_BACK), (P.SHIFTING, E.RESTART, P.ROLLING_BACK),
    (P.SWITCHING, E.DONE, P.DRAINING), (P.SWITCHING, E.FAILED, P.ROLLING_BACK), (P.SWITCHING, E.RESTART, P.RESUMING),
    (P.SWITCHING, E.BREACHED, P.ROLLING_BACK), (P.RESUMING, E.BREACHED, P.ROLLING_BACK), (P.RETIRING, E.BREACHED, P.ROLLING_BACK),
    (P.RESUMING, E.DONE, P.RESUMING), (P.RESUMING, E.FAILED, P.ROLLING_BACK), (P.RESUMING, E.RESTART, P.RESUMING),
    (P.DRAINING, E.DONE, P.BAKING), (P.DRAINING, E.FAILED, P.ROLLING_BACK), (P.DRAINING, E.BREACHED, P.ROLLING_BACK),
    (P.DRAINING, E.RESTART, P.RESUMING),
    (P.BAKING, E.DONE, P.BAKING), (P.BAKING, E.REFUSED, P.ROLLING_BACK), (P.BAKING, E.FAILED, P.ROLLING_BACK), (P.BAKING, E.BREACHED, P.ROLLING_BACK),
    (P.BAKING, E.RESTART, P.RESUMING),
    (P.RETIRING, E.DONE, P.SUCCEEDED), (P.RETIRING, E.FAILED, P.RETIRING), (P.RETIRING, E.RESTART, P.RESUMING),
    (P.ROLLING_BACK, E.DONE, P.ROLLING_BACK), (P.ROLLING_BACK, E.FAILED, P.ROLLING_BACK),
    (P.ROLLING_BACK, E.RESTART, P.ROLLING_BACK),
]  # fmt: skip
LEGAL = {(phase, kind) for phase, kind, _ in LEADS}


@pytest.mark.parametrize(("before", "event", "after"), LEADS)
def test_each_pair_leads_where_the_table_says(
    before: OperationPhase, event: OperationEvent, after: OperationPhase
) -> None:
    found = step(at(before), event, FAULT).state
    assert found.phase is after
    assert (found.effect is None) == (after in FINAL)
    assert (found.outcome is not None) == (after is P.ROLLING_BACK)


@pytest.mark.parametrize(("phase", "event"), [p for p in product(P, E) if p not in LEGAL])
def test_every_other_pair_raises(phase: OperationPhase, event: OperationEvent) -> None:
    with pytest.raises(IllegalOperationEvent, match=f"{event} while {phase}"):
        step(at(phase), event, FAULT)


def walk(machine: OperationState, event: OperationEvent) -> list[tuple[str, RouteChange | None]]:
    """The effects of an operation to which nothing bad happens after an event, with the moves committed before them."""
    found = step(machine, event, FAULT)
    seen = []
    while found.state.effect:
        seen.append((found.state.effect.key.removeprefix("op/"), found.change))
        found = step(found.state, E.DONE)
    return [*seen, (found.state.phase, found.change)]


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
    way = walk(OperationState(PLANS[name]), E.BEGIN)
    assert [key for key, _ in way] == WAYS[name]
    previous = None if name == "rollback" else "old"
    assert [one for one in way if one[1]] == [
        ("switching/route/new", RouteChange("annie", "new", previous, 7))
    ]


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
    way = walk(at(phase, PLANS[name]), E.RESTART)
    assert way == [(f"rolling_back/{key}", None) for key in UNDONE[name]] + [("failed", None)]


@pytest.mark.parametrize("event, undone, end", [
    (E.BREACHED, TAKEN_BACK, P.ROLLED_BACK), (E.CANCEL, UNDONE, P.CANCELLED), (E.FAILED, UNDONE, P.FAILED), (E.RESTART, UNDONE, P.FAILED),
])  # fmt: skip
@pytest.mark.parametrize("cursor", [0, 1])
def test_a_share_that_ends_badly_is_taken_back_before_the_candidate_is_stopped(
    event: OperationEvent, undone: dict[str, list[str]], end: OperationPhase, cursor: int
) -> None:
    """At each of its weights. The alias has not moved, and does not."""
    way = walk(at(P.SHIFTING, cursor=cursor), event)
    assert way == [(f"rolling_back/{key}", None) for key in undone["shifting"]] + [(end, None)]


@pytest.mark.parametrize(
    ("phase", "event"),
    [(P.SWITCHING, E.FAILED), (P.BAKING, E.FAILED), *((phase, E.BREACHED) for phase in sorted(SWITCHED))],
)
@pytest.mark.parametrize("name", TAKEN_BACK)
def test_after_the_switch_a_fault_takes_it_back_with_the_alias(
    name: str, phase: OperationPhase, event: OperationEvent
) -> None:
    way = walk(at(phase, PLANS[name]), event)
    assert [key for key, _ in way] == [f"rolling_back/{key}" for key in TAKEN_BACK[name]] + ["rolled_back"]
    assert [moved for _, moved in way if moved] == [RouteChange("annie", "old", "older", 8)] and way[0][1]


@pytest.mark.parametrize("phase", sorted(SWITCHED))
def test_after_the_switch_a_restart_goes_forward_and_moves_nothing(phase: OperationPhase) -> None:
    way = walk(at(phase), E.RESTART)
    assert way == [(key, None) for key in (
        "resuming/start/new", "resuming/route/new", "draining/drain/old",
        "baking/watch/new", "baking/recheck/new", "retiring/stop/old", "succeeded",
    )]  # fmt: skip
    of_replicas = [key for key, _ in walk(at(phase, PAIR), E.RESTART)]
    assert of_replicas[:3] == ["resuming/start/new", "resuming/start/new2", "resuming/route/new"]


@pytest.mark.parametrize("phase", [P.ROLLING_BACK, P.RETIRING])
def test_an_effect_that_keeps_failing_leaves_it_stuck(phase: OperationPhase) -> None:
    machine = at(phase)
    for _ in range(ATTEMPTS - 1):
        before = machine.effect
        machine = step(machine, E.FAILED, FAULT).state
        assert (machine.phase, machine.effect) == (phase, before)
    assert step(machine, E.DONE).state.tries == 0
    assert step(machine, E.FAILED, FAULT).state == replace(machine, phase=P.STUCK, tries=0, fault=FAULT)


def test_only_what_leads_back_or_watches_runs_before_its_state_is_written() -> None:
    ahead = {phase for phase in OperationPhase if at(phase).runs_ahead}
    assert ahead == {P.RESUMING, P.DRAINING, P.BAKING, P.ROLLING_BACK}
    assert at(P.STARTING, BACK).runs_ahead


def test_a_resident_engine_is_never_stopped() -> None:
    plan = replace(BLUE, resident=("old", "new", "spare"))
    for phase, event in ((P.QUEUED, E.BEGIN), (P.CANARY, E.RESTART), (P.ROLLING_BACK, E.RESTART)):
        assert not [key for key, _ in walk(at(phase, plan), event) if f"/{Action.STOP}/" in key]


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


@given(st.sampled_from(list(PLANS.values())), st.lists(st.sampled_from(E), max_size=60))
def test_whatever_happens_one_alias_move_forward_and_at_most_one_back(
    plan: OperationPlan, events: list[OperationEvent]
) -> None:
    """And a state read back from its text is the same state."""
    machine, moved = OperationState(plan), list[RouteChange]()
    for event in events:
        if machine.takes(event):
            machine, change = step(machine, event, FAULT)
            moved += [change] if change else []
            assert read(OperationState, encode(machine), "state") == machine
    assert [(one.live, one.generation) for one in moved] == [("new", 7), ("old", 8)][: len(moved)]
    assert (machine.phase in SWITCHED or machine.phase is P.SUCCEEDED) <= (len(moved) == 1)


def test_at_a_start_orphans_go_and_an_operations_model_is_left_to_it() -> None:
    live = {"annie": ("old",), "bertha": ("big", "two"), "carla": ("big",)}
    assert reconcile(live, [], ["spare"], ["lost", "old"]) == (["lost"], ["big", "old", "spare", "two"])
    assert reconcile(live, [BLUE], ["spare"], ["lost", "new", "old"]) == (["lost"], ["big", "spare", "two"])


def test_every_action_has_a_handler_and_all_but_three_a_timeout() -> None:
    assert HANDLERS.keys() == {*Action}
    assert {*Action} - TIMEOUTS.keys() == {Action.DRAIN, Action.SHARE, Action.WATCH}
