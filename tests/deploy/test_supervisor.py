"""The restart policy, as a table and as a law: never two children, and a stop that stops."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.core.errors import IllegalTransition
from deploy.engine.engine import Phase
from deploy.engine.supervisor import (
    ChildEvent,
    ChildState,
    Command,
    Due,
    Exited,
    GaveUp,
    Kill,
    Left,
    RestartPolicy,
    Spawn,
    Start,
    Stop,
    Streams,
    Terminate,
    Wake,
    step,
)

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
    (S, Start(1), T, (Spawn(),)),
    (F, Start(1), T, (Spawn(),)),
    (F, Due(1), T, (Spawn(),)),
    (T, Streams(1), R, ()),
    (T, GaveUp(1, "why"), T, (Kill(),)),
    (T, Exited(1, "why"), B, (Wake(1.0),)),
    (R, Exited(1, "why"), B, (Wake(1.0),)),
    (R, GaveUp(1, "why"), T, (Kill(),)),
    (B, Due(1), T, (Spawn(),)),
    (T, Stop(1), G, (Terminate(),)),
    (R, Stop(1), G, (Terminate(),)),
    (G, Exited(1, "why"), S, ()),
    (B, Stop(1), S, ()),
    (F, Stop(1), S, ()),
    (T, Left(1), S, ()),
    (R, Left(1), S, ()),
]
EXAMPLES: dict[type, ChildEvent] = {
    Start: Start(1),
    Streams: Streams(1),
    GaveUp: GaveUp(1, "why"),
    Exited: Exited(1, "why"),
    Due: Due(1),
    Stop: Stop(1),
    Left: Left(1),
}


@pytest.mark.parametrize(("before", "event", "after", "effects"), TABLE)
def test_the_table(before: Phase, event: ChildEvent, after: Phase, effects: tuple[Command, ...]) -> None:
    machine, done = step(POLICY, ChildState(phase=before, was_ready=before is R), event)
    assert (machine.phase, done, machine.since) == (after, effects, 1)


LEGAL = {(before, type(event)) for before, event, _, _ in TABLE}


@pytest.mark.parametrize(
    ("phase", "kind"),
    [pair for pair in product(Phase, get_args(ChildEvent)) if pair not in LEGAL],
)
def test_every_other_pair_raises(phase: Phase, kind: type) -> None:
    with pytest.raises(IllegalTransition, match=phase):
        step(POLICY, ChildState(phase=phase), EXAMPLES[kind])


def run(*events: ChildEvent, policy: RestartPolicy = POLICY) -> tuple[ChildState, list[Command]]:
    """A fresh machine after these events, and all effects."""
    machine = ChildState()
    effects: list[Command] = []
    for event in events:
        machine, done = step(policy, machine, event)
        effects += done
    return machine, effects


def crashes(count: int, *, ready_for: float = 0.0) -> list[ChildEvent]:
    """Start, then children that stream, last so long, and die."""
    events: list[ChildEvent] = [Start(0)]
    at = 0.0
    for _ in range(count):
        events += [Streams(at), Exited(at + ready_for, "died"), Due(at + ready_for)]
        at += ready_for
    return events


def test_pauses_double_up_to_the_cap() -> None:
    machine, effects = run(*crashes(7))
    assert [e.after_s for e in effects if isinstance(e, Wake)] == [1, 2, 4, 8, 8, 8, 8]
    assert machine.restarts == 7
    assert RestartPolicy().pause_s(10_000) == RestartPolicy().longest_pause_s


def test_a_stable_time_forgets_old_failures() -> None:
    _, effects = run(*crashes(3, ready_for=60))
    assert [e.after_s for e in effects if isinstance(e, Wake)] == [1, 1, 1]


def test_a_refusal_at_the_first_start_is_final() -> None:
    machine, effects = run(Start(0), Exited(1, "bad model", refused=True))
    assert (machine.phase, machine.error, effects) == (F, "bad model", [Spawn()])


def test_silence_at_the_first_start_is_final() -> None:
    machine, effects = run(Start(0), GaveUp(1, "no token"), Exited(2, "was killed"))
    assert (machine.phase, machine.error, effects) == (F, "no token", [Spawn(), Kill()])


def test_a_crash_at_the_first_start_is_tried_a_few_times() -> None:
    died = Exited(1, "signal 9")
    machine, effects = run(Start(0), died, Due(2), died, Due(3), died)
    assert machine.phase is F
    assert effects == [Spawn(), Wake(1), Spawn(), Wake(2), Spawn()]


def test_a_failed_engine_is_started_again_where_the_policy_says_so() -> None:
    policy = RestartPolicy(retry_s=5.0)
    child, commands = run(Start(0), Exited(1, "bad", refused=True), policy=policy)
    assert (child.phase, child.error, commands) == (F, "bad", [Spawn(), Wake(5.0)])
    again, then = step(policy, child, Due(6))
    assert (again, then) == (ChildState(phase=T, since=6), (Spawn(),))


class World:
    """A child, a timer and a clock that obey the effects, and check them."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.policy, self.machine, self.now = policy, ChildState(), 0.0
        self.child = self.timer = False

    def send(self, event: ChildEvent) -> None:
        if isinstance(event, Exited):
            self.child = False
        if isinstance(event, Due):
            self.timer = False
        self.machine, effects = step(self.policy, self.machine, event)
        for effect in effects:
            if isinstance(effect, Spawn):
                assert not self.child, "a second child"
                self.child = True
            elif isinstance(effect, Terminate | Kill):
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
        events: list[ChildEvent] = [Start(at)] if phase in (S, F) else []
        events += [Stop(at)] if phase not in (S, G) else []
        events += [Due(at)] if self.timer else []
        if self.child:
            events += [Exited(at, "died"), Exited(at, "refused", refused=True)]
        if self.child and not self.machine.doomed:
            events += [Streams(at)] if phase is T else []
            events += [GaveUp(at, "hangs")] if phase in (T, R) else []
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
        world.send(Stop(world.now))
    if world.child:
        world.send(Exited(world.now, "ended"))
    assert world.machine.phase is S
    assert not world.child and not world.timer


@pytest.mark.parametrize("was_ready", [False, True])
def test_a_child_that_was_ended_for_good_is_not_made_again(was_ready: bool) -> None:
    machine = ChildState(phase=T if not was_ready else R, was_ready=was_ready)
    after, done = step(POLICY, machine, Exited(1, "memory", barred=True))
    assert (after.phase, after.error, done) == (F, "memory", ())
