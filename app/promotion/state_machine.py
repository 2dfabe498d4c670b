"""How a model comes to be served by another engine, as a table: state and event in, state and effect out.

    queued --Begin--> preflight    check: the report and the weights, or the target of a rollback
                      admitted     lease; with stop-then-start also: route, drain, stop; admit
                      starting     start
                      healthy      identify: the running engine is what was judged; recheck
                      warming      warm                                       (not in a rollback)
                      canary       probe, identify and recheck                (not in a rollback)
                      shifting     share, once a weight, and recheck (if weights are set, and the incumbent runs)
                      switching    route                 <- the point of no return is its commit
                      draining     drain
                      baking       watch, recheck                             (not in a rollback)
                      retiring     stop the incumbent
                      succeeded

    recheck: whether it is still eligible; the last effect before callers reach it, and before the incumbent is stopped
    before the switch: EffectRefused -> rejected, EffectFailed -> failed, Cancel -> cancelled; by way of
        rolling_back where anything was begun
    shifting: Breached -> rolling_back -> rolled_back; the alias has not moved, and requests had their engines
    after it: EffectRefused, EffectFailed, Breached -> rolling_back -> rolled_back; while retiring, only Breached
    rolling_back, retiring: a failed effect is retried, then the operation is stuck: an operator has to act
    Restart (the gateway had stopped): before the switch -> rolling_back; after it -> resuming
        (start, route), then draining again; in rolling_back -> its effects from the first one

Replicas are one set: all of the new ones pass each phase, and all serve from the switch on.

* **Intent, effect, outcome.** A state names the one effect that is to run next. The worker commits the state, runs the
  effect, and feeds its outcome back: after a kill, the stored state says what may have been begun. A state that
  `runs_ahead` only leads back, or watches: its effect does not wait for the commit, so that a full disk keeps no bad
  candidate in service.
* **Every effect is idempotent.** It establishes a condition ("this engine runs"), and its key is the same whenever the
  same condition is meant.
* **The alias moves with the state**, in the transaction that commits it (`RouteChange`).
* The outcome of another effect than the present one is rejected: it dates from before a cancel.

Pure. The fields of `OperationState` and `OperationPlan`, and the values of the enums, are stored in the registry: an old
one must still be read.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from app.registry.values import RouteChange

ATTEMPTS: Final = 3
"""How often an effect of `rolling_back` or `retiring` is run before the operation is stuck."""


# ----------------------------------------------------------------------------------------- the plan


class OperationKind(StrEnum):
    """What was requested."""

    PROMOTE = "promote"
    ROLLBACK = "rollback"


class Strategy(StrEnum):
    """Whether the memory holds the incumbent and the candidate at once; if not, the fallback serves meanwhile."""

    BLUE_GREEN = "blue_green"
    STOP_THEN_START = "stop_then_start"


class PlanError(ValueError):
    """A plan that could not be carried out without an interruption; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPlan:
    """One operation on one public model, fixed before it begins. Raises PlanError: the engines do not fit together.

    Engines are identified by the digest of their spec: a name may come to mean another engine meanwhile.

    `incumbent` serves when it begins, `candidate` when it has succeeded; `candidates` and `incumbents` are their further
    replicas. `generation` is that of the model's `live` alias when the plan was made: if it has moved since, the plan is
    void. `previous` is what that alias pointed to before, to be restored when the switch is undone. `resident` engines
    are never stopped by this operation: the fallbacks, and those that serve other models. Before the switch the candidate
    gets each of `shift_weights`, in percent of the model's conversations, for `shift_s` seconds; after it, it is watched
    for `bake_s` seconds.
    """

    operation: str
    kind: OperationKind
    model: str
    candidate: str
    incumbent: str
    strategy: Strategy
    generation: int
    previous: str | None = None
    candidates: tuple[str, ...] = ()
    incumbents: tuple[str, ...] = ()
    fallback: str | None = None
    resident: tuple[str, ...] = ()
    report: str | None = None
    bake_s: float = 600.0
    shift_weights: tuple[int, ...] = ()
    shift_s: float = 60.0

    def __post_init__(self) -> None:
        """Stop-then-start frees the incumbent's memory, so another engine must serve meanwhile."""
        if self.strategy is Strategy.BLUE_GREEN:
            return
        pair = {*self.new, *self.old}
        if self.fallback is None or self.fallback in pair:
            raise PlanError(
                "both engines do not fit into memory at once, and there is no third to serve meanwhile:"
                f" give {self.model} a fallback"
            )
        if pair & {*self.resident}:
            raise PlanError("both engines do not fit into memory at once, and one of them has to stay")

    @property
    def new(self) -> tuple[str, ...]:
        """The candidate and its replicas."""
        return (self.candidate, *self.candidates)

    @property
    def old(self) -> tuple[str, ...]:
        """The incumbent and its replicas."""
        return (self.incumbent, *self.incumbents)

    @property
    def shifts(self) -> bool:
        """Whether live traffic is shifted before the switch; not where the incumbent had to stop for the candidate."""
        beside = self.strategy is Strategy.BLUE_GREEN
        return beside and bool(self.shift_weights) and self.kind is OperationKind.PROMOTE


# --------------------------------------------------------------------------------- phases and events


class OperationPhase(StrEnum):
    """The phase that an operation is in."""

    QUEUED = "queued"
    PREFLIGHT = "preflight"
    ADMITTED = "admitted"
    STARTING = "starting"
    HEALTHY = "healthy"
    WARMING = "warming"
    CANARY = "canary"
    SHIFTING = "shifting"
    SWITCHING = "switching"
    RESUMING = "resuming"
    DRAINING = "draining"
    BAKING = "baking"
    RETIRING = "retiring"
    ROLLING_BACK = "rolling_back"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    STUCK = "stuck"


_P = OperationPhase

FINAL: Final = frozenset({_P.SUCCEEDED, _P.REJECTED, _P.FAILED, _P.CANCELLED, _P.ROLLED_BACK, _P.STUCK})
SWITCHED: Final = frozenset({_P.SWITCHING, _P.RESUMING, _P.DRAINING, _P.BAKING, _P.RETIRING})
"""The alias points to the candidate."""
HALF_WAY: Final = frozenset({_P.SHIFTING, _P.SWITCHING})
"""The candidate serves, and nothing watches it between two effects."""
AHEAD: Final = frozenset({_P.RESUMING, _P.DRAINING, _P.BAKING, _P.ROLLING_BACK})
"""Their effects lead to what the registry names already, or only watch."""
LONGEST_MESSAGE: Final = 4000
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class FailureReason:
    """Why something failed: a code for programs and a line for people, cut and made sound, for it may quote an engine."""

    code: str
    message: str

    def __post_init__(self) -> None:
        sound = self.message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()
        object.__setattr__(self, "message", sound)


@dataclass(frozen=True, slots=True)
class Begin:
    """The operation is the next in the queue."""


@dataclass(frozen=True, slots=True)
class EffectDone:
    """The effect with this key has been brought about."""

    key: str


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """The effect with this key could not be brought about."""

    key: str
    fault: FailureReason


@dataclass(frozen=True, slots=True)
class EffectRefused:
    """The check with this key has rejected the candidate."""

    key: str
    fault: FailureReason


@dataclass(frozen=True, slots=True)
class Breached:
    """In live traffic the candidate exceeded a limit, failed or disappeared; or an operator rolled it back."""

    fault: FailureReason


@dataclass(frozen=True, slots=True)
class Cancel:
    """An operator has cancelled the operation."""

    by: str

    @property
    def fault(self) -> FailureReason:
        return FailureReason("cancelled", f"cancelled by {self.by}")


@dataclass(frozen=True, slots=True)
class Restart:
    """The gateway has started and found this operation unfinished."""


OperationEvent = Begin | EffectDone | EffectFailed | EffectRefused | Breached | Cancel | Restart


# ------------------------------------------------------------------------------------------- effects


class Action(StrEnum):
    """The condition that an effect establishes for the engine that it names."""

    CHECK = "check"  # it is eligible: report, digests, lineage, revocations
    RECHECK = "recheck"  # it is eligible still; its weights are not read again
    LEASE = "lease"  # this operation holds the one loading lease, if it has an engine to load
    ADMIT = "admit"  # there is memory for it
    START = "start"  # it runs and streams; loaded under the lease, which ends with the load
    IDENTIFY = "identify"  # what runs is what the report and the spec say
    WARM = "warm"  # it answers every request shape
    PROBE = "probe"  # it answers the canary's questions
    SHARE = "share"  # it has behaved in live traffic for `shift_s` at one weight
    ROUTE = "route"  # new requests of the model go to it, and to its replicas
    DRAIN = "drain"  # it has no open request left; bounded, and then the rest is cut off
    STOP = "stop"  # it has ended, and its memory has been freed
    WATCH = "watch"  # it has behaved in live traffic for `bake_s`


CHECKS: Final = frozenset({Action.CHECK, Action.RECHECK, Action.IDENTIFY})
"""They may refuse the candidate."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to be brought about. `key` is stable: `OPERATION/PHASE/ACTION/ENGINE`, and behind it a `weight`, in percent."""

    key: str
    action: Action
    engine: str
    weight: int = 0


EffectEvidence = dict[str, object]
"""Figures and digests that the outcome of an effect rests on, as JSON values."""

Steps = tuple[tuple[Action, str] | tuple[Action, str, int], ...]
"""Actions, the engines that they are for, and the weight of a share, in order."""


@lru_cache(maxsize=256)  # every step asks for its phase's twice
def effects(plan: OperationPlan, phase: OperationPhase, outcome: OperationPhase | None) -> tuple[Effect, ...]:
    """The effects of a phase, in order; `outcome` is how an operation that is rolling back will end."""
    make = _PHASES.get(phase)
    steps = _undo(plan, outcome) if phase is _P.ROLLING_BACK else make(plan) if make else ()
    return tuple(Effect("/".join(map(str, (plan.operation, phase, *one))), *one) for one in steps)


def _each(engines: Iterable[str], *actions: Action) -> Steps:
    return tuple((action, engine) for engine in engines for action in actions)


def _stop(plan: OperationPlan, engines: Iterable[str]) -> Steps:
    return _each((engine for engine in engines if engine not in plan.resident), Action.STOP)


def _make_room(plan: OperationPlan, engines: tuple[str, ...]) -> Steps:
    """With stop-then-start: the fallback serves, and the memory of the engines that served is freed."""
    if plan.strategy is Strategy.BLUE_GREEN or plan.fallback is None:
        return ()
    return ((Action.ROUTE, plan.fallback), *_each(engines, Action.DRAIN), *_stop(plan, engines))


def _undo(plan: OperationPlan, outcome: OperationPhase | None) -> Steps:
    """The old engines serve again, and the new ones have stopped. No-op for an old one that serves."""
    old_serve = (*_each(plan.old, Action.START), (Action.ROUTE, plan.incumbent))
    has_served = outcome is _P.ROLLED_BACK
    if plan.strategy is Strategy.BLUE_GREEN and (has_served or plan.shifts):
        return (*old_serve, *_each(plan.new, Action.DRAIN), *_stop(plan, plan.new))
    return (*(_make_room(plan, plan.new) if has_served else _stop(plan, plan.new)), *old_serve)


_PHASES: Final[Mapping[OperationPhase, Callable[[OperationPlan], Steps]]] = {
    _P.PREFLIGHT: lambda plan: _each(plan.new, Action.CHECK),
    # The lease comes first, so that nothing is stopped only to wait for another model's load.
    _P.ADMITTED: lambda plan: (
        (Action.LEASE, plan.candidate), *_make_room(plan, plan.old), (Action.ADMIT, plan.candidate),
    ),
    # A replica is admitted once those before it have their memory.
    _P.STARTING: lambda plan: (
        (Action.START, plan.candidate), *_each(plan.candidates, Action.ADMIT, Action.START),
    ),
    _P.HEALTHY: lambda plan: _each(plan.new, Action.IDENTIFY, Action.RECHECK),
    _P.WARMING: lambda plan: _each(plan.new, Action.WARM),
    _P.CANARY: lambda plan: _each(plan.new, Action.PROBE, Action.IDENTIFY, Action.RECHECK),
    _P.SHIFTING: lambda plan: (
        *((Action.SHARE, plan.candidate, weight) for weight in plan.shift_weights), (Action.RECHECK, plan.candidate),
    ),
    _P.SWITCHING: lambda plan: ((Action.ROUTE, plan.candidate),),
    _P.RESUMING: lambda plan: (*_each(plan.new, Action.START), (Action.ROUTE, plan.candidate)),
    _P.DRAINING: lambda plan: _each(plan.old, Action.DRAIN),
    _P.BAKING: lambda plan: ((Action.WATCH, plan.candidate), *_each(plan.new, Action.RECHECK)),
    _P.RETIRING: lambda plan: _stop(plan, plan.old),
}  # fmt: skip


# ----------------------------------------------------------------------------------------- the state


@dataclass(frozen=True, slots=True)
class OperationState:
    """An operation. `at` counts the finished effects of the phase, `tries` the failures of the next one.

    `outcome` is how it will end, known once it is rolling back; `fault` is why.
    """

    plan: OperationPlan
    phase: OperationPhase = _P.QUEUED
    at: int = 0
    tries: int = 0
    outcome: OperationPhase | None = None
    fault: FailureReason | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has ended, in success or not."""
        return self.phase in FINAL

    @property
    def goes_back(self) -> bool:
        """Whether it restores the engines that served before."""
        return self.plan.kind is OperationKind.ROLLBACK or self.outcome is not None

    @property
    def runs_ahead(self) -> bool:
        """Whether its effect may run before the disk has taken the state."""
        return self.goes_back or self.phase in AHEAD

    @property
    def effect(self) -> Effect | None:
        """The effect to run next; None if only an event from outside leads on."""
        remaining = effects(self.plan, self.phase, self.outcome)
        return remaining[self.at] if self.at < len(remaining) else None


class Transition(NamedTuple):
    """What an event led to: commit `state` and `route_change` in one transaction, then run `effect`."""

    state: OperationState
    route_change: RouteChange | None
    effect: Effect | None


class IllegalOperationEvent(Exception):
    """This event cannot happen in this state; nothing was changed."""


def step(state: OperationState, event: OperationEvent) -> Transition:
    """The operation after an event. Raises IllegalOperationEvent."""
    rule = TABLE.get((state.phase, type(event)))
    if rule is None:
        raise IllegalOperationEvent(f"{type(event).__name__} while {state.phase}")
    if isinstance(event, EffectDone | EffectFailed | EffectRefused):
        _check_is_present_effect(state, event)
    return rule(state, event)


def _check_is_present_effect(state: OperationState, event: EffectDone | EffectFailed | EffectRefused) -> None:
    present = state.effect
    if present is None or present.key != event.key:
        raise IllegalOperationEvent(f"{type(event).__name__} of {event.key} while {present and present.key}")
    if isinstance(event, EffectRefused) and present.action not in CHECKS:
        raise IllegalOperationEvent(f"{event.key} is no check that could refuse")


# ------------------------------------------------------------------------------ from phase to phase

_PROMOTE: Final = (
    _P.QUEUED, _P.PREFLIGHT, _P.ADMITTED, _P.STARTING, _P.HEALTHY, _P.WARMING, _P.CANARY,
    _P.SWITCHING, _P.DRAINING, _P.BAKING, _P.RETIRING, _P.SUCCEEDED,
)  # fmt: skip
PATHS: Final[Mapping[OperationKind, tuple[OperationPhase, ...]]] = {
    OperationKind.PROMOTE: _PROMOTE,
    # The target has served before, and there is nothing further to go back to.
    OperationKind.ROLLBACK: tuple(p for p in _PROMOTE if p not in (_P.WARMING, _P.CANARY, _P.BAKING)),
}
"""The phases of an operation in which nothing goes wrong, for each kind, without a share of the traffic."""


def path(plan: OperationPlan) -> tuple[OperationPhase, ...]:
    """The phases of this operation if nothing goes wrong."""
    phases = PATHS[plan.kind]
    switch = phases.index(_P.SWITCHING)
    return (*phases[:switch], *([_P.SHIFTING] if plan.shifts else ()), *phases[switch:])


def _enter(state: OperationState, phase: OperationPhase, change: RouteChange | None = None) -> Transition:
    after = replace(state, phase=phase, at=0, tries=0)
    if phase is _P.SWITCHING:
        change = _switch_forward(state.plan)
    if after.effect is None and phase not in FINAL:
        return _enter(after, _next(after), change)  # the phase has nothing to do in this plan
    return Transition(after, change, after.effect)


def _next(state: OperationState) -> OperationPhase:
    if state.phase is _P.ROLLING_BACK:
        assert state.outcome is not None
        return state.outcome
    if state.phase is _P.RESUMING:
        return _P.DRAINING
    phases = path(state.plan)
    return phases[phases.index(state.phase) + 1]


def _switch_forward(plan: OperationPlan) -> RouteChange:
    # An engine that was rolled back from comes back only by a new promotion.
    previous = plan.incumbent if plan.kind is OperationKind.PROMOTE else None
    return RouteChange(plan.model, plan.candidate, previous, plan.generation)


def _switch_back(plan: OperationPlan) -> RouteChange:
    return RouteChange(plan.model, plan.incumbent, plan.previous, plan.generation + 1)


def _done(state: OperationState, event: EffectDone) -> Transition:
    after = replace(state, at=state.at + 1, tries=0)
    if after.effect is None:
        return _enter(after, _next(after))
    return Transition(after, None, after.effect)


def _retry(state: OperationState, event: EffectFailed) -> Transition:
    if state.tries + 1 >= ATTEMPTS:
        return _enter(replace(state, fault=event.fault), _P.STUCK)
    after = replace(state, tries=state.tries + 1)
    return Transition(after, None, after.effect)


def _roll_back(state: OperationState, outcome: OperationPhase, fault: FailureReason) -> Transition:
    """Undo what was begun, then end as `outcome`; after the switch it always ends as rolled back."""
    change = None
    if state.phase in SWITCHED:
        outcome, change = _P.ROLLED_BACK, _switch_back(state.plan)
    return _enter(replace(state, outcome=outcome, fault=fault), _P.ROLLING_BACK, change)


_Rule = Callable[..., Transition]


def _ends_as(outcome: OperationPhase) -> _Rule:
    """A rule that rolls the operation back and ends it in this phase, with the fault of the event."""
    return lambda state, event: _roll_back(state, outcome, event.fault)


def _stops_as(outcome: OperationPhase) -> _Rule:
    """A rule that ends the operation in this phase; nothing has been done that would have to be undone."""
    return lambda state, event: _enter(replace(state, fault=event.fault), outcome)


def _goes_to(phase: OperationPhase) -> _Rule:
    return lambda state, event: _enter(state, phase)


def _interrupted(state: OperationState, event: Restart) -> Transition:
    # Also if nothing was begun: the incumbent has to be started and routed to after the restart.
    return _roll_back(
        state, _P.FAILED, FailureReason("interrupted", f"the gateway was stopped while {state.phase}")
    )


_Rules = Mapping[type, _Rule]
_UNTOUCHED: Final[_Rules] = {
    EffectDone: _done, EffectFailed: _stops_as(_P.FAILED), EffectRefused: _stops_as(_P.REJECTED),
    Cancel: _stops_as(_P.CANCELLED), Restart: _interrupted,
}  # fmt: skip
_BEFORE: Final[_Rules] = {
    EffectDone: _done, EffectFailed: _ends_as(_P.FAILED), Cancel: _ends_as(_P.CANCELLED), Restart: _interrupted,
}  # fmt: skip
_AFTER: Final[_Rules] = {
    EffectDone: _done, EffectFailed: _ends_as(_P.FAILED), Restart: _goes_to(_P.RESUMING), Breached: _ends_as(_P.ROLLED_BACK),
}  # fmt: skip
_REFUSABLE: Final[_Rules] = {EffectRefused: _ends_as(_P.REJECTED)}
_RULES: Final[Mapping[OperationPhase, _Rules]] = {
    _P.QUEUED: {Begin: _goes_to(_P.PREFLIGHT), Cancel: _stops_as(_P.CANCELLED), Restart: _interrupted},
    _P.PREFLIGHT: _UNTOUCHED,
    _P.ADMITTED: _BEFORE,
    _P.STARTING: _BEFORE,
    _P.HEALTHY: {**_BEFORE, **_REFUSABLE},
    _P.WARMING: _BEFORE,
    _P.CANARY: {**_BEFORE, **_REFUSABLE},
    _P.SHIFTING: {**_BEFORE, **_REFUSABLE, Breached: _ends_as(_P.ROLLED_BACK)},
    _P.SWITCHING: _AFTER,
    _P.RESUMING: _AFTER,
    _P.DRAINING: _AFTER,
    _P.BAKING: {**_AFTER, **_REFUSABLE},
    _P.RETIRING: {**_AFTER, EffectFailed: _retry},
    _P.ROLLING_BACK: {EffectDone: _done, EffectFailed: _retry, Restart: _goes_to(_P.ROLLING_BACK)},
}
TABLE: Final[Mapping[tuple[OperationPhase, type], _Rule]] = {
    (phase, event): rule for phase, rules in _RULES.items() for event, rule in rules.items()
}
"""Every legal pair. A phase of `FINAL` takes no event."""


def reconcile(
    live: Mapping[str, str],
    unfinished: Iterable[OperationState],
    resident: Collection[str],
    running: Collection[str],
) -> tuple[list[str], list[str]]:
    """The engines to stop at a start, and those to start then; afterwards each unfinished operation goes on by `Restart`.

    `live` is the engine of each model's live alias, `unfinished` the operations as they were found, `resident` the
    engines that always run (fallbacks), `running` those found running.

    A model with an unfinished operation is left to that operation. Engines that run and are not wanted are orphans: they
    are stopped first, since their memory may be needed. A running engine that is wanted is adopted.
    """
    plans = {state.plan.model: state.plan for state in unfinished}
    involved = {engine for plan in plans.values() for engine in (*plan.new, *plan.old)}
    wanted = {*resident, *(engine for model, engine in live.items() if model not in plans)}
    return sorted({*running} - wanted - involved), sorted(wanted)


class EffectEnding(Exception):
    """An effect did not bring about what it should. The worker turns each kind into an event."""

    def __init__(self, fault: FailureReason) -> None:
        super().__init__(f"{fault.code}: {fault.message}")
        self.fault = fault


class EffectError(EffectEnding):
    """EffectFailed: it could not be done; the operation is undone."""


class RefusalError(EffectEnding):
    """EffectRefused: a check rejected the candidate; so is the operation."""


class BreachError(EffectEnding):
    """Breached: in live traffic the candidate exceeded a limit, failed or disappeared; it is rolled back."""
