"""The promotion machine as a table: every pair, every way through, and every effect by name."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors.tree import Refused
from app.promotion.startup import reconcile
from app.promotion.state_machine import (
    ATTEMPTS,
    Action,
    FailureReason,
    OperationEvent,
    OperationKind,
    OperationPhase,
    OperationPlan,
    OperationState,
    step,
)
from app.promotion.steps import HANDLERS, TIMEOUTS
from app.registry.values import RouteChange
from gates.decode.decoder import encode, read

P, E = OperationPhase, OperationEvent
FAULT = FailureReason("code", "message")
BLUE = OperationPlan(
    operation="op", kind=OperationKind.PROMOTE, model="annie", candidate="new", incumbent="old", previous="older",
    strategy="blue_green", generation=7, fallback="spare", resident=("spare",), report="sha256:r",
)  # fmt: skip
TIGHT = replace(BLUE, strategy="stop_then_start")
BACK = replace(BLUE, kind=OperationKind.ROLLBACK, report=None, previous="new")
SHARED = replace(BLUE, shift_weights=(5, 25))
PAIR = replace(BLUE, candidates=("new2",), incumbents=("old2",), strategy="stop_then_start")
PLANS = {"blue_green": BLUE, "stop_then_start": TIGHT, "rollback": BACK, "shifting": SHARED, "replicas": PAIR}


def at(phase: OperationPhase, plan: OperationPlan | None = None, cursor: int = 0) -> OperationState:
    """A machine in a phase, as it can be met."""
    plan = plan or (SHARED if phase is P.SHIFTING else BLUE)
    outcome = P.ROLLED_BACK if phase is P.ROLLING_BACK else None
    return OperationState(plan, phase, cursor, 0, outcome)


BEFORE = (P.ADMITTED, P.STARTING, P.HEALTHY, P.WARMING, P.CANARY, P.SHIFTING)
AFTER = (P.SWITCHING, P.RESUMING, P.DRAINING, P.BAKING, P.RETIRING)
ENDS = {
    **dict.fromkeys(product((P.QUEUED, P.PREFLIGHT, *BEFORE), [E.CANCEL]), P.CANCELLED),
    **dict.fromkeys(product((P.QUEUED, P.PREFLIGHT, *BEFORE), [E.RESTART]), P.FAILED),
    **dict.fromkeys(product((P.PREFLIGHT, *BEFORE), [E.FAILED]), P.FAILED),
    **dict.fromkeys(product((P.PREFLIGHT, P.HEALTHY, P.CANARY, P.SHIFTING), [E.REFUSED]), P.REJECTED),
    **dict.fromkeys(product((P.SHIFTING, *AFTER), [E.BREACHED]), P.ROLLED_BACK),
    **dict.fromkeys(product(AFTER[:-1], [E.FAILED]), P.ROLLED_BACK),
    (P.BAKING, E.REFUSED): P.ROLLED_BACK,
}
"""The events that end an operation, and how."""
LEGAL = {
    (P.QUEUED, E.BEGIN), *product((P.PREFLIGHT, *BEFORE, *AFTER, P.ROLLING_BACK), [E.DONE]), *ENDS,
    *product((*AFTER, P.ROLLING_BACK), [E.RESTART]), *product((P.RETIRING, P.ROLLING_BACK), [E.FAILED]),
}  # fmt: skip


def test_no_other_pair_of_a_phase_and_an_event_is_legal() -> None:
    for phase, event in {*product(P, E)} - LEGAL:
        with pytest.raises(ValueError, match=f"{event} while {phase}"):
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


@pytest.mark.parametrize("cursor", [0, 1])
@pytest.mark.parametrize("name", UNDONE)
def test_what_ends_an_operation_undoes_what_was_begun(name: str, cursor: int) -> None:
    """The alias goes back with the first step after the switch, and has not moved before it."""
    for (phase, event), end in ENDS.items():
        machine = at(phase, PLANS[name], cursor)
        if machine.effect is None and phase is not P.QUEUED:
            continue
        change = RouteChange("annie", "old", "older", 8) if phase in AFTER else None
        undone = (TAKEN_BACK if end is P.ROLLED_BACK else UNDONE)[name]
        if phase in (P.QUEUED, P.PREFLIGHT) and event is not E.RESTART:
            undone = []
        way = walk(machine, event)
        assert [key for key, _ in way] == [*(f"rolling_back/{key}" for key in undone), end], (phase, event)
        assert [moved for _, moved in way] == [change, *[None] * len(undone)]


@pytest.mark.parametrize("phase", AFTER)
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
        ({"fallback": None, "strategy": "stop_then_start"}, "fallback"),
        ({"fallback": "old", "strategy": "stop_then_start"}, "fallback"),
        ({"resident": ("old",), "strategy": "stop_then_start"}, "has to stay"),
    ],
)
def test_a_plan_that_would_interrupt_service_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(Refused, match=why):
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
    assert (machine.phase in (*AFTER, P.SUCCEEDED)) <= (len(moved) == 1)


def test_at_a_start_orphans_go_and_an_operations_model_is_left_to_it() -> None:
    live = {"annie": ("old",), "bertha": ("big", "two"), "carla": ("big",)}
    assert reconcile(live, [], ["spare"], ["lost", "old"]) == (["lost"], ["big", "old", "spare", "two"])
    assert reconcile(live, [BLUE], ["spare"], ["lost", "new", "old"]) == (["lost"], ["big", "spare", "two"])


def test_every_action_has_a_handler_and_all_but_three_a_timeout() -> None:
    assert HANDLERS.keys() == {*Action}
    assert {*Action} - TIMEOUTS.keys() == {Action.DRAIN, Action.SHARE, Action.WATCH}
