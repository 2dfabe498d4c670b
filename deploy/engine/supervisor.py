"""How a child is kept alive, as a table: state and event in, state and effects out.

Pure: time comes in with each event, effects go out as data and `deploy.drivers.embedded` runs them.

    STOPPED, FAILED  --Start-->   STARTING     Spawn
    STARTING         --Streams--> READY
    STARTING         --GaveUp-->  STARTING     Kill; its end decides
    STARTING         --Exited-->  BACKING_OFF  Wake later, or FAILED
    READY            --Exited-->  BACKING_OFF  Wake later, or FAILED
    READY            --GaveUp-->  STARTING     Kill; somebody saw that it hangs
    BACKING_OFF      --Due-->     STARTING     Spawn
    STARTING, READY  --Stop-->    STOPPING     Terminate
    STOPPING         --Exited-->  STOPPED
    BACKING_OFF, FAILED --Stop--> STOPPED
    STARTING, READY  --Left-->    STOPPED      the child lives on, without us

Two rules make it safe. There is never a second child: Spawn comes only from states that have
none, and a state with a child is left only by its Exited (by its Stop and then its Exited), or by
our leaving it behind. And whatever happened before, Stop and the child's Exited end in STOPPED.

A child that never streamed is treated with less patience than one that once did: what refuses its
configuration, or stays silent, will do so again, so it fails at once, and a crash while starting
is tried a few times only. One that was ready is restarted without end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from deploy.core.errors import IllegalTransition
from deploy.engine.engine import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How patient the supervisor is. Times in seconds.

    The pause before restart n is `first_pause_s * factor ** (n - 1)`, at most `longest_pause_s`;
    n starts again at 1 after a child was ready for `stable_s`. `boot_attempts` limits the children
    before the first that streams, `max_attempts` those in a row after it (None: no limit).
    """

    first_pause_s: float = 0.25
    factor: float = 2.0
    longest_pause_s: float = 30.0
    stable_s: float = 60.0
    boot_attempts: int = 3
    max_attempts: int | None = None

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row (1 or more)."""
        # The exponent is capped too: a float overflows after a thousand failures.
        return min(self.first_pause_s * self.factor ** min(failures - 1, 64), self.longest_pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a supervised child stands.

    `since` is when `phase` was entered; `failures` counts children that ended in a row,
    `restarts` children after the first, both since Start. `was_ready` is whether one has ever
    streamed since then; `doomed` is whether the present one is to be killed.
    """

    phase: Phase = Phase.STOPPED
    since: float = 0.0
    failures: int = 0
    restarts: int = 0
    was_ready: bool = False
    doomed: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Somebody wants the engine."""

    at: float


@dataclass(frozen=True, slots=True)
class Streams:
    """The child streamed a token."""

    at: float


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The child lives, but not to any use: no token by the deadline, or it hangs."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The child is gone, or could not be made.

    `refused`: it said that it cannot work like this. `barred`: it was ended so that it stays down.
    """

    at: float
    why: str
    refused: bool = False
    barred: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """The pause is over."""

    at: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Nobody wants the engine any more."""

    at: float


@dataclass(frozen=True, slots=True)
class Left:
    """The child lives on without us: this process ends, or somebody else takes over."""

    at: float


@dataclass(frozen=True, slots=True)
class Spawn:
    """Make a child."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the child to end; make it end if it takes too long."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Make the child end now."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Send Due after this many seconds, unless Stop comes first."""

    after_s: float


Event = Start | Streams | GaveUp | Exited | Due | Stop | Left
Effect = Spawn | Terminate | Kill | Wake
Step = tuple[Machine, tuple[Effect, ...]]


def step(policy: Policy, machine: Machine, event: Event) -> Step:
    """The machine after an event, and what is to be done about it.

    Raises:
        IllegalTransition: this state cannot take this event; nothing has changed.
    """
    rule = _TABLE.get((machine.phase, type(event)))
    if rule is None or (machine.doomed and isinstance(event, Streams | GaveUp)):
        raise IllegalTransition(f"{type(event).__name__} while {machine.phase}")
    return rule(policy, machine, event)


def _enter(machine: Machine, phase: Phase, at: float) -> Machine:
    return replace(machine, phase=phase, since=at)


def _start(policy: Policy, machine: Machine, event: Start) -> Step:
    return Machine(phase=Phase.STARTING, since=event.at), (Spawn(),)


def _streams(policy: Policy, machine: Machine, event: Streams) -> Step:
    return replace(_enter(machine, Phase.READY, event.at), was_ready=True), ()


def _gave_up(policy: Policy, machine: Machine, event: GaveUp) -> Step:
    settled = _settle(policy, machine, event.at)
    doomed = replace(settled, doomed=True, error=event.why)
    return _enter(doomed, Phase.STARTING, event.at), (Kill(),)


def _exited(policy: Policy, machine: Machine, event: Exited) -> Step:
    settled = _settle(policy, machine, event.at)
    failures = settled.failures + 1
    error = machine.error if machine.doomed else event.why
    after = replace(settled, failures=failures, doomed=False, error=error)
    if _is_final(policy, machine, event, failures):
        return _enter(after, Phase.FAILED, event.at), ()
    return _enter(after, Phase.BACKING_OFF, event.at), (Wake(policy.pause_s(failures)),)


def _settle(policy: Policy, machine: Machine, at: float) -> Machine:
    """Forget old failures if the child was ready for long enough."""
    stable = machine.phase is Phase.READY and at - machine.since >= policy.stable_s
    return replace(machine, failures=0) if stable else machine


def _is_final(policy: Policy, machine: Machine, event: Exited, failures: int) -> bool:
    if event.barred:
        return True
    if not machine.was_ready:
        return event.refused or machine.doomed or failures >= policy.boot_attempts
    return policy.max_attempts is not None and failures >= policy.max_attempts


def _due(policy: Policy, machine: Machine, event: Due) -> Step:
    again = replace(machine, restarts=machine.restarts + 1)
    return _enter(again, Phase.STARTING, event.at), (Spawn(),)


def _stop_child(policy: Policy, machine: Machine, event: Stop) -> Step:
    return _enter(machine, Phase.STOPPING, event.at), (Terminate(),)


def _stopped(policy: Policy, machine: Machine, event: Stop | Exited | Left) -> Step:
    return replace(_enter(machine, Phase.STOPPED, event.at), doomed=False), ()


_TABLE: Mapping[tuple[Phase, type], Callable[..., Step]] = {
    (Phase.STOPPED, Start): _start,
    (Phase.FAILED, Start): _start,
    (Phase.STARTING, Streams): _streams,
    (Phase.STARTING, GaveUp): _gave_up,
    (Phase.STARTING, Exited): _exited,
    (Phase.READY, Exited): _exited,
    (Phase.READY, GaveUp): _gave_up,
    (Phase.BACKING_OFF, Due): _due,
    (Phase.STARTING, Stop): _stop_child,
    (Phase.READY, Stop): _stop_child,
    (Phase.STOPPING, Exited): _stopped,
    (Phase.BACKING_OFF, Stop): _stopped,
    (Phase.FAILED, Stop): _stopped,
    (Phase.STARTING, Left): _stopped,
    (Phase.READY, Left): _stopped,
}
