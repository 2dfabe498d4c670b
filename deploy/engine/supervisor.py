"""The one restart loop of an engine, as a table: state and event in, state and commands out.

Pure: time comes in with each event; commands go out as data, and `deploy.engine.supervised` runs them.
`Child` below is whatever runs the engine: a process of ours, or a container.

    STOPPED, FAILED  --Start-->   STARTING     Spawn
    STARTING         --Streams--> READY
    STARTING         --GaveUp-->  STARTING     Kill; its end decides
    STARTING         --Exited-->  BACKING_OFF  Wake later, or FAILED
    READY            --Exited-->  BACKING_OFF  Wake later, or FAILED
    READY            --GaveUp-->  STARTING     Kill; a probe saw that it hangs
    BACKING_OFF      --Due-->     STARTING     Spawn
    FAILED           --Due-->     STARTING     Spawn; only where the policy has a `retry_s`
    STARTING, READY  --Stop-->    STOPPING     Terminate
    STOPPING         --Exited-->  STOPPED
    BACKING_OFF, FAILED --Stop--> STOPPED
    STARTING, READY  --Left-->    STOPPED      the child lives on, without us

Two invariants. There is never a second child: Spawn comes only from states that have none, and a
state with a child is left only by its Exited (or by its Stop and then its Exited), or by leaving
the child behind. And whatever happened before, Stop and the child's Exited end in STOPPED.

A child that never streamed gets fewer attempts than one that did: if it refuses its configuration
or stays silent, it would do so again, so it fails at once, and a crash while starting is retried a few
times only. One that was ready is restarted without limit. `FAILED` is published, so that a caller who waits
for the start learns of it; with `retry_s`, the engine is then started again from the beginning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from deploy.core.errors import IllegalTransition
from deploy.engine.engine import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Backoff and limits of restarts. Times in seconds.

    The pause before restart n is `first_pause_s * factor ** (n - 1)`, at most `longest_pause_s`; n starts again at 1 after
    `stable_s` of readiness. `boot_attempts` limits the children before the first that streams. A failed engine starts again
    after `retry_s`.
    """

    first_pause_s: float = 0.25
    factor: float = 2.0
    longest_pause_s: float = 30.0
    stable_s: float = 60.0
    boot_attempts: int = 3
    retry_s: float | None = None

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row (1 or more)."""
        # The exponent is capped too: a float overflows after a thousand failures.
        return min(self.first_pause_s * self.factor ** min(failures - 1, 64), self.longest_pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildState:
    """The supervision of one child: `failures` in a row, `restarts` since Start; `doomed`: the present child is to be killed."""

    phase: Phase = Phase.STOPPED
    since: float = 0.0
    failures: int = 0
    restarts: int = 0
    was_ready: bool = False
    doomed: bool = False
    error: str | None = None


class EventKind(StrEnum):
    """An event of an engine's life."""

    START = "start"  # the engine is wanted
    STREAMS = "streams"  # the child streamed a token
    GAVE_UP = "gave_up"  # the child lives but is of no use: no token by the deadline, or it hangs
    EXITED = "exited"  # the child is gone, or could not be made
    DUE = "due"  # the pause before a restart is over
    STOP = "stop"  # the engine is not wanted any more
    LEFT = "left"  # the child runs on without us: this process ends, or another one takes over


@dataclass(frozen=True, slots=True)
class ChildEvent:
    """An event, its time (monotonic seconds) and its reason. `refused`: the engine cannot work so configured. `barred`: `Engine.kill` ended it."""

    kind: EventKind
    at: float
    why: str = ""
    refused: bool = False
    barred: bool = False


class CommandKind(StrEnum):
    """A kind of command for the shell."""

    SPAWN = "spawn"  # make a child
    TERMINATE = "terminate"  # ask the child to end; kill it if that takes too long
    KILL = "kill"
    WAKE = "wake"  # send DUE after `after_s` seconds, unless STOP comes first


@dataclass(frozen=True, slots=True)
class Command:
    """A command for the shell."""

    kind: CommandKind
    after_s: float = 0.0


ChildTransition = tuple[ChildState, tuple[Command, ...]]


def step(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    """The state after an event, and the commands to run. Raises IllegalTransition; then nothing has changed."""
    rule = _TABLE.get((child.phase, event.kind))
    if rule is None or (child.doomed and event.kind in (EventKind.STREAMS, EventKind.GAVE_UP)):
        raise IllegalTransition(f"{event.kind} while {child.phase}")
    return rule(policy, child, event)


def _enter(child: ChildState, phase: Phase, at: float) -> ChildState:
    return replace(child, phase=phase, since=at)


def _start(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    return ChildState(phase=Phase.STARTING, since=event.at), (Command(CommandKind.SPAWN),)


def _streams(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    return replace(_enter(child, Phase.READY, event.at), was_ready=True), ()


def _gave_up(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    settled = _settle(policy, child, event.at)
    doomed = replace(settled, doomed=True, error=event.why)
    return _enter(doomed, Phase.STARTING, event.at), (Command(CommandKind.KILL),)


def _exited(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    settled = _settle(policy, child, event.at)
    failures = settled.failures + 1
    error = child.error if child.doomed else event.why
    after = replace(settled, failures=failures, doomed=False, error=error)
    if _is_final(policy, child, event, failures):
        retry = () if policy.retry_s is None else (Command(CommandKind.WAKE, policy.retry_s),)
        return _enter(after, Phase.FAILED, event.at), retry
    return _enter(after, Phase.BACKING_OFF, event.at), (Command(CommandKind.WAKE, policy.pause_s(failures)),)


def _settle(policy: RestartPolicy, child: ChildState, at: float) -> ChildState:
    """Forget old failures if the child was ready for long enough."""
    stable = child.phase is Phase.READY and at - child.since >= policy.stable_s
    return replace(child, failures=0) if stable else child


def _is_final(policy: RestartPolicy, child: ChildState, event: ChildEvent, failures: int) -> bool:
    if child.was_ready:
        return event.barred
    return event.barred or event.refused or child.doomed or failures >= policy.boot_attempts


def _due(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    again = replace(child, restarts=child.restarts + 1)
    return _enter(again, Phase.STARTING, event.at), (Command(CommandKind.SPAWN),)


def _stop_child(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    return _enter(child, Phase.STOPPING, event.at), (Command(CommandKind.TERMINATE),)


def _stopped(policy: RestartPolicy, child: ChildState, event: ChildEvent) -> ChildTransition:
    return replace(_enter(child, Phase.STOPPED, event.at), doomed=False), ()


_TABLE: Mapping[tuple[Phase, EventKind], Callable[..., ChildTransition]] = {
    (Phase.STOPPED, EventKind.START): _start,
    (Phase.FAILED, EventKind.START): _start,
    (Phase.FAILED, EventKind.DUE): _start,
    (Phase.STARTING, EventKind.STREAMS): _streams,
    (Phase.STARTING, EventKind.GAVE_UP): _gave_up,
    (Phase.STARTING, EventKind.EXITED): _exited,
    (Phase.READY, EventKind.EXITED): _exited,
    (Phase.READY, EventKind.GAVE_UP): _gave_up,
    (Phase.BACKING_OFF, EventKind.DUE): _due,
    (Phase.STARTING, EventKind.STOP): _stop_child,
    (Phase.READY, EventKind.STOP): _stop_child,
    (Phase.STOPPING, EventKind.EXITED): _stopped,
    (Phase.BACKING_OFF, EventKind.STOP): _stopped,
    (Phase.FAILED, EventKind.STOP): _stopped,
    (Phase.STARTING, EventKind.LEFT): _stopped,
    (Phase.READY, EventKind.LEFT): _stopped,
}
