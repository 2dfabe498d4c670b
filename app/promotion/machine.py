"""How a model comes to be served by another engine, as a table: state and event in, state and effect out.

    queued --Begin--> preflight    check: the report and the weights, or what a rollback may go back to
                      admitted     lease; to stop and then start also: route, drain, stop; admit
                      starting     start
                      healthy      identify: the running engine says what it is
                      warming      warm                                       (not in a rollback)
                      canary       probe, and identify again                  (not in a rollback)
                      switching    route                 <- the point of no return is its commit
                      draining     drain, release
                      baking       watch                                      (not in a rollback)
                      retiring     stop the incumbent
                      succeeded

    before the switch: Refused -> rejected, Failed -> failed, Cancel -> cancelled; by way of
        rolling_back where anything was begun
    after it: Failed, Breached -> rolling_back -> rolled_back
    rolling_back, retiring: a failed effect is tried again, then stuck: somebody has to look
    Restart (the gateway had stopped): before the switch -> rolling_back; after it -> resuming
        (start, route), then draining again; in rolling_back -> its effects from the first one

The rules it keeps:

* **Intent, effect, outcome.** A state names the one effect that is to run next. The runner commits
  the state, runs the effect, and feeds its outcome; whatever it is killed between, the state says
  what may have been begun.
* **Every effect is idempotent.** It brings something about ("this engine runs", "new requests go
  there") and has a key that is the same whenever the same thing is meant, so that containers can be
  labelled with it. `start` of an engine that runs leaves it alone.
* **The alias moves with the state.** A `Move` is committed in the transaction that commits the
  state, so that there is no moment at which one says before and the other after.
* An outcome of another effect than the present one is refused: it comes from before a cancel.

Pure. It does not know what an effect takes, how long it may last, or where the state is kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from app.promotion.effects import Effect, Verb, effects
from app.promotion.phases import (
    FINAL,
    SWITCHED,
    UNTOUCHED,
    Begin,
    Breached,
    Cancel,
    Done,
    Event,
    Failed,
    Fault,
    Phase,
    Refused,
    Restart,
)
from app.promotion.plan import Kind, Plan

TRIES: Final = 3
"""How often an effect of `rolling_back` or `retiring` is run before the operation is stuck."""


@dataclass(frozen=True, slots=True)
class Move:
    """Where a model's `live` and `previous` are to point, if `live` is still of `generation`."""

    model: str
    live: str
    previous: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Machine:
    """An operation. `at` counts the effects of the phase that are done, `tries` the failures of the next.

    `outcome` is how it will end, known once it is rolling back; `fault` is why.
    """

    plan: Plan
    phase: Phase = Phase.QUEUED
    at: int = 0
    tries: int = 0
    outcome: Phase | None = None
    fault: Fault | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self.phase in FINAL

    @property
    def is_cancellable(self) -> bool:
        """Whether Cancel is a legal event: until the switch, and while nothing else has gone wrong."""
        return (self.phase, Cancel) in TABLE

    @property
    def effect(self) -> Effect | None:
        """What is to be brought about next; None where only an event from outside leads on."""
        work = effects(self.plan, self.phase, self.outcome)
        return work[self.at] if self.at < len(work) else None


class Step(NamedTuple):
    """What an event led to: commit `machine` and `move` in one transaction, then run `effect`."""

    machine: Machine
    move: Move | None
    effect: Effect | None


class IllegalEvent(Exception):
    """This event cannot happen in this state; nothing was changed."""


def step(machine: Machine, event: Event) -> Step:
    """The operation after an event. Raises IllegalEvent."""
    rule = TABLE.get((machine.phase, type(event)))
    if rule is None:
        raise IllegalEvent(f"{type(event).__name__} while {machine.phase}")
    if isinstance(event, Done | Failed | Refused):
        _check_is_of_now(machine, event)
    return rule(machine, event)


def recover(machine: Machine) -> Step:
    """What to do about an unfinished operation at start. Raises IllegalEvent if it is finished."""
    return step(machine, Restart())


def _check_is_of_now(machine: Machine, event: Done | Failed | Refused) -> None:
    present = machine.effect
    if present is None or present.key != event.key:
        raise IllegalEvent(f"{type(event).__name__} of {event.key} while {present and present.key}")
    if isinstance(event, Refused) and present.verb not in (Verb.CHECK, Verb.IDENTIFY):
        raise IllegalEvent(f"{event.key} is no check that could refuse")


# ------------------------------------------------------------------------------ from phase to phase

PATHS: Final[Mapping[Kind, tuple[Phase, ...]]] = {
    Kind.PROMOTE: (
        Phase.QUEUED, Phase.PREFLIGHT, Phase.ADMITTED, Phase.STARTING, Phase.HEALTHY, Phase.WARMING, Phase.CANARY,
        Phase.SWITCHING, Phase.DRAINING, Phase.BAKING, Phase.RETIRING, Phase.SUCCEEDED,
    ),
    # At once: what has served before is not tried out again, and there is nothing to go back to.
    Kind.ROLLBACK: (
        Phase.QUEUED, Phase.PREFLIGHT, Phase.ADMITTED, Phase.STARTING, Phase.HEALTHY,
        Phase.SWITCHING, Phase.DRAINING, Phase.RETIRING, Phase.SUCCEEDED,
    ),
}  # fmt: skip
"""The good way through, for each kind."""


def _enter(machine: Machine, phase: Phase, move: Move | None = None) -> Step:
    after = replace(machine, phase=phase, at=0, tries=0)
    if phase is Phase.SWITCHING:
        move = _forward(machine.plan)
    if after.effect is None and phase not in FINAL:
        return _enter(after, _next(after), move)  # the phase has nothing to do in this plan
    return Step(after, move, after.effect)


def _next(machine: Machine) -> Phase:
    if machine.phase is Phase.ROLLING_BACK:
        assert machine.outcome is not None
        return machine.outcome
    if machine.phase is Phase.RESUMING:
        return Phase.DRAINING
    path = PATHS[machine.plan.kind]
    return path[path.index(machine.phase) + 1]


def _forward(plan: Plan) -> Move:
    # After a rollback there is no way back to what was rolled back from, but a new report.
    previous = plan.incumbent if plan.kind is Kind.PROMOTE else None
    return Move(plan.model, plan.candidate, previous, plan.generation)


def _backward(plan: Plan) -> Move:
    return Move(plan.model, plan.incumbent, plan.previous, plan.generation + 1)


def _begin(machine: Machine, event: Begin) -> Step:
    return _enter(machine, _next(machine))


def _done(machine: Machine, event: Done) -> Step:
    after = replace(machine, at=machine.at + 1, tries=0)
    if after.effect is None:
        return _enter(after, _next(after))
    return Step(after, None, after.effect)


def _failed(machine: Machine, event: Failed) -> Step:
    return _back(machine, Phase.FAILED, event.fault)


def _refused(machine: Machine, event: Refused) -> Step:
    return _back(machine, Phase.REJECTED, event.fault)


def _breached(machine: Machine, event: Breached) -> Step:
    return _back(machine, Phase.ROLLED_BACK, event.fault)


def _cancelled(machine: Machine, event: Cancel) -> Step:
    return _back(machine, Phase.CANCELLED, Fault("cancelled", f"cancelled by {event.by}"))


def _interrupted(machine: Machine, event: Restart) -> Step:
    # Also where nothing was begun: what serves has to be brought up and routed to again.
    fault = Fault("interrupted", f"the gateway was stopped while {machine.phase}")
    return _enter(replace(machine, outcome=Phase.FAILED, fault=fault), Phase.ROLLING_BACK)


def _resume(machine: Machine, event: Restart) -> Step:
    return _enter(machine, Phase.RESUMING)


def _undo_again(machine: Machine, event: Restart) -> Step:
    return _enter(machine, Phase.ROLLING_BACK)


def _try_again(machine: Machine, event: Failed) -> Step:
    tries = machine.tries + 1
    if tries >= TRIES:
        return _enter(replace(machine, fault=event.fault), Phase.STUCK)
    after = replace(machine, tries=tries)
    return Step(after, None, after.effect)


def _back(machine: Machine, outcome: Phase, fault: Fault) -> Step:
    """Undo what was begun, and then end as `outcome`; after the switch there is only one way to end."""
    if machine.phase in UNTOUCHED:
        return _enter(replace(machine, fault=fault), outcome)
    if machine.phase in SWITCHED:
        back = replace(machine, outcome=Phase.ROLLED_BACK, fault=fault)
        return _enter(back, Phase.ROLLING_BACK, _backward(machine.plan))
    return _enter(replace(machine, outcome=outcome, fault=fault), Phase.ROLLING_BACK)


_Rule = Callable[..., Step]
_BEFORE: Final[tuple[tuple[type, _Rule], ...]] = (
    (Done, _done),
    (Failed, _failed),
    (Cancel, _cancelled),
    (Restart, _interrupted),
)
_AFTER: Final[tuple[tuple[type, _Rule], ...]] = ((Done, _done), (Failed, _failed), (Restart, _resume))


def _rows(phase: Phase, *rules: tuple[type, _Rule]) -> dict[tuple[Phase, type], _Rule]:
    return {(phase, event): rule for event, rule in rules}


TABLE: Final[Mapping[tuple[Phase, type], _Rule]] = {
    **_rows(Phase.QUEUED, (Begin, _begin), (Cancel, _cancelled), (Restart, _interrupted)),
    **_rows(Phase.PREFLIGHT, *_BEFORE, (Refused, _refused)),
    **_rows(Phase.ADMITTED, *_BEFORE),
    **_rows(Phase.STARTING, *_BEFORE),
    **_rows(Phase.HEALTHY, *_BEFORE, (Refused, _refused)),
    **_rows(Phase.WARMING, *_BEFORE),
    **_rows(Phase.CANARY, *_BEFORE, (Refused, _refused)),
    **_rows(Phase.SWITCHING, *_AFTER),
    **_rows(Phase.RESUMING, *_AFTER),
    **_rows(Phase.DRAINING, *_AFTER, (Breached, _breached)),
    **_rows(Phase.BAKING, *_AFTER, (Breached, _breached)),
    **_rows(Phase.RETIRING, (Done, _done), (Failed, _try_again), (Restart, _resume)),
    **_rows(Phase.ROLLING_BACK, (Done, _done), (Failed, _try_again), (Restart, _undo_again)),
}
"""Every legal pair. A phase of `FINAL` takes no event."""
