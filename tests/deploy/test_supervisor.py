"""The restart policy, as a table and as a law: never two children, and a stop that stops."""

from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.core.errors import IllegalTransition
from deploy.engine.engine import Phase
from deploy.engine.supervisor import (
    ChildEvent,
    ChildState,
    Command,
    CommandKind,
    EventKind,
    RestartPolicy,
    step,
)

START, STREAMS, GAVE_UP, EXITED, DUE, STOP, LEFT = (partial(ChildEvent, kind) for kind in EventKind)
SPAWN, TERMINATE, KILL = map(Command, (CommandKind.SPAWN, CommandKind.TERMINATE, CommandKind.KILL))
WAKE = partial(Command, CommandKind.WAKE)
POLICY = RestartPolicy(first_pause_s=1.0, longest_pause_s=8.0, stable_s=60.0, boot_attempts=3)
S, T, R, B, G, F = (
    Phase.STOPPED,
    Phase.STARTING,
    Phase.READY,
    Phase.BACKING_OFF,
    Phase.STOPPING,
    Phase.FAILED,
)

# (from, event, to, effects): the whole table, with a child that has never streamed.
TABLE: list[tuple[Phase, ChildEvent, Phase, tuple[Command, ...]]] = [
    (S, START(1), T, (SPAWN,)),
    (F, START(1), T, (SPAWN,)),
    (F, DUE(1), T, (SPAWN,)),
    (T, STREAMS(1), R, ()),
    (T, GAVE_UP(1, "why"), T, (KILL,)),
    (T, EXITED(1, "why"), B, (WAKE(1.0),)),
    (R, EXITED(1, "why"), B, (WAKE(1.0),)),
    (R, GAVE_UP(1, "why"), T, (KILL,)),
    (B, DUE(1), T, (SPAWN,)),
    (T, STOP(1), G, (TERMINATE,)),
    (R, STOP(1), G, (TERMINATE,)),
    (G, EXITED(1, "why"), S, ()),
    (B, STOP(1), S, ()),
    (F, STOP(1), S, ()),
    (T, LEFT(1), S, ()),
    (R, LEFT(1), S, ()),
]


@pytest.mark.parametrize(("before", "event", "after", "effects"), TABLE)
def test_the_table(before: Phase, event: ChildEvent, after: Phase, effects: tuple[Command, ...]) -> None:
    machine, done = step(POLICY, ChildState(phase=before, was_ready=before is R), event)
    assert (machine.phase, done, machine.since) == (after, effects, 1)


LEGAL = {(before, event.kind) for before, event, _, _ in TABLE}


@pytest.mark.parametrize(
    ("phase", "kind"),
    [pair for pair in product(Phase, EventKind) if pair not in LEGAL],
)
def test_every_other_pair_raises(phase: Phase, kind: EventKind) -> None:
    with pytest.raises(IllegalTransition, match=phase):
        step(POLICY, ChildState(phase=phase), ChildEvent(kind, 1))


def run(*events: ChildEvent, policy: RestartPolicy = POLICY) -> tuple[ChildState, list[Command]]:
    """A fresh machine after these events, and all effects."""
    machine = ChildState()
    effects: list[Command] = []
    for event in events:
        machine, done = step(policy, machine, event)
        effects += done
    return machine, effects


def test_a_failed_engine_is_started_again_where_the_policy_says_so() -> None:
    policy = RestartPolicy(retry_s=5.0)
    child, commands = run(START(0), EXITED(1, "bad", refused=True), policy=policy)
    assert (child.phase, child.error, commands) == (F, "bad", [SPAWN, WAKE(5.0)])
    again, then = step(policy, child, DUE(6))
    assert (again, then) == (ChildState(phase=T, since=6), (SPAWN,))


class World:
    """A child, a timer and a clock that obey the effects, and check them."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.policy, self.machine, self.now = policy, ChildState(), 0.0
        self.child = self.timer = False

    def send(self, event: ChildEvent) -> None:
        if event.kind is EventKind.EXITED:
            self.child = False
        if event.kind is EventKind.DUE:
            self.timer = False
        self.machine, effects = step(self.policy, self.machine, event)
        for effect in effects:
            if effect == SPAWN:
                assert not self.child, "a second child"
                self.child = True
            elif effect in (TERMINATE, KILL):
                assert self.child, "a signal to nobody"
            else:
                assert not self.timer, "a second timer"
                self.timer = True
        if self.machine.phase not in (B, F):
            self.timer = False
        assert self.child == (self.machine.phase in (T, R, G))

    def possible(self) -> list[ChildEvent]:
        """What could happen next, in this world."""
        at, phase = self.now, self.machine.phase
        events: list[ChildEvent] = [START(at)] if phase in (S, F) else []
        events += [STOP(at)] if phase not in (S, G) else []
        events += [DUE(at)] if self.timer else []
        if self.child:
            events += [EXITED(at, "died"), EXITED(at, "refused", refused=True)]
        if self.child and not self.machine.doomed:
            events += [STREAMS(at)] if phase is T else []
            events += [GAVE_UP(at, "hangs")] if phase in (T, R) else []
        return events


@given(
    st.lists(st.tuples(st.integers(0, 9), st.floats(0, 100)), max_size=60),
    st.sampled_from([None, 5.0]),
)
def test_never_two_children_and_a_stop_that_stops(
    choices: list[tuple[int, float]], retry_s: float | None
) -> None:
    world = World(RestartPolicy(retry_s=retry_s))
    for choice, pause in choices:
        world.now += pause
        events = world.possible()
        world.send(events[choice % len(events)])
    if world.machine.phase not in (S, G):
        world.send(STOP(world.now))
    if world.child:
        world.send(EXITED(world.now, "ended"))
    assert world.machine.phase is S
    assert not world.child and not world.timer


@pytest.mark.parametrize("was_ready", [False, True])
def test_a_child_that_was_ended_for_good_is_not_made_again(was_ready: bool) -> None:
    machine = ChildState(phase=T if not was_ready else R, was_ready=was_ready)
    after, done = step(POLICY, machine, EXITED(1, "memory", barred=True))
    assert (after.phase, after.error, done) == (F, "memory", ())
