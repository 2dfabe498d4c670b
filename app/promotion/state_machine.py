"""How a model comes to be served by another engine: where each event leads (`TABLE`), and the effects of each phase.

    queued -> preflight -> admitted -> starting -> healthy -> warming -> canary -> shifting
           -> switching (the point of no return is its commit) -> draining -> baking -> retiring -> succeeded

An operation passes over a phase that has nothing to do in its plan.

* **Intent, effect, outcome.** A state names the one effect that is to run next. The worker commits the state, runs the
  effect, and feeds its outcome back: after a kill, the stored state says what may have been begun.
* **Undo.** An event that ends an operation first leads to `rolling_back`, if anything was begun: the old engines serve
  again, and the new ones stop. From the switch on it always ends as `rolled_back`.
* **Restart**: before the switch the operation is undone; after it, it goes on at `resuming`.
* **The alias moves with the state**, in the transaction that commits it.

Pure. The fields of `OperationState` and `OperationPlan`, and the values of the enums, are stored in the registry: an old
one must still be read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from app.errors.tree import Refused
from app.registry.values import RouteChange

ATTEMPTS: Final = 3
"""How often an effect of `rolling_back` or `retiring` is run before the operation is stuck: an operator has to act."""
LONGEST_MESSAGE: Final = 4000
"""Characters of a reason."""


class OperationKind(StrEnum):
    """What was requested."""

    PROMOTE = "promote"
    ROLLBACK = "rollback"


Strategy = Literal["blue_green", "stop_then_start"]
"""Whether the memory holds the incumbent and the candidate at once; if not, the fallback serves meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPlan:
    """One operation on one public model, fixed before it begins. Raises Refused (no_room): service would be interrupted.

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
        pair = {*self.new, *self.old}
        if self.strategy == "blue_green":
            return
        if self.fallback is None or self.fallback in pair:
            why = f"there is no third to serve meanwhile: give {self.model} a fallback"
        elif pair & {*self.resident}:
            why = "one of them has to stay"
        else:
            return
        raise Refused(f"both engines do not fit into memory at once, and {why}", "no_room")

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
        promotes = self.kind is OperationKind.PROMOTE
        return promotes and self.strategy == "blue_green" and bool(self.shift_weights)


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


class OperationEvent(StrEnum):
    """Events of an operation. All events but begin, done and restart carry a reason."""

    BEGIN = "begin"  # it is the next in the queue
    DONE = "done"  # the present effect was brought about
    FAILED = "failed"  # it could not be
    REFUSED = "refused"  # it was a check, and rejected the candidate
    BREACHED = "breached"  # the candidate is bad in live traffic, or an operator rolled it back
    CANCEL = "cancel"  # an operator cancelled the operation
    RESTART = "restart"  # the gateway has started and found it unfinished


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


_P, _E = OperationPhase, OperationEvent


@dataclass(frozen=True, slots=True)
class FailureReason:
    """Why something failed: a code for programs and a line for people, cut and made sound, for it may quote an engine."""

    code: str
    message: str

    def __post_init__(self) -> None:
        sound = self.message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()
        object.__setattr__(self, "message", sound)


class EffectError(Exception):
    """An effect could not be done, so the operation is undone; `event` is what the operation makes of it."""

    event = _E.FAILED

    def __init__(self, fault: FailureReason) -> None:
        super().__init__(f"{fault.code}: {fault.message}")
        self.fault = fault


class RefusalError(EffectError):
    """A check rejected the candidate; so is the operation."""

    event = _E.REFUSED


class BreachError(EffectError):
    """In live traffic the candidate exceeded a limit, failed or disappeared; it is rolled back."""

    event = _E.BREACHED


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to be brought about. `key` is stable: `OPERATION/PHASE/ACTION/ENGINE`, and behind it a `weight`, in percent."""

    key: str
    action: Action
    engine: str
    weight: int = 0


EffectEvidence = dict[str, object]
"""Figures and digests that the outcome of an effect rests on, as JSON values."""


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
        """Whether its effect may run before the disk has taken the state: a full disk keeps no bad candidate in service."""
        return self.goes_back or self.phase in AHEAD

    @property
    def effect(self) -> Effect | None:
        """The effect to run next; None if only an event from outside leads on."""
        steps = _steps(self)
        if self.at >= len(steps):
            return None
        step = steps[self.at]
        return Effect("/".join(map(str, (self.plan.operation, self.phase, *step))), *step)

    def takes(self, event: OperationEvent) -> bool:
        """Whether the event is legal now."""
        return event in TABLE.get(self.phase, {})


_BEFORE: Final = {_E.FAILED: _P.FAILED, _E.CANCEL: _P.CANCELLED, _E.RESTART: _P.FAILED}
_CHECKED: Final = {**_BEFORE, _E.REFUSED: _P.REJECTED}
_AFTER: Final = {_E.FAILED: _P.ROLLED_BACK, _E.BREACHED: _P.ROLLED_BACK, _E.RESTART: _P.RESUMING}
TABLE: Final[Mapping[OperationPhase, Mapping[OperationEvent, OperationPhase]]] = {
    _P.QUEUED: {_E.BEGIN: _P.PREFLIGHT, _E.CANCEL: _P.CANCELLED, _E.RESTART: _P.FAILED},
    _P.PREFLIGHT: {_E.DONE: _P.ADMITTED, **_CHECKED},
    _P.ADMITTED: {_E.DONE: _P.STARTING, **_BEFORE},
    _P.STARTING: {_E.DONE: _P.HEALTHY, **_BEFORE},
    _P.HEALTHY: {_E.DONE: _P.WARMING, **_CHECKED},
    _P.WARMING: {_E.DONE: _P.CANARY, **_BEFORE},
    _P.CANARY: {_E.DONE: _P.SHIFTING, **_CHECKED},
    _P.SHIFTING: {_E.DONE: _P.SWITCHING, **_CHECKED, _E.BREACHED: _P.ROLLED_BACK},
    _P.SWITCHING: {_E.DONE: _P.DRAINING, **_AFTER},
    _P.RESUMING: {_E.DONE: _P.DRAINING, **_AFTER},
    _P.DRAINING: {_E.DONE: _P.BAKING, **_AFTER},
    _P.BAKING: {_E.DONE: _P.RETIRING, **_AFTER, _E.REFUSED: _P.ROLLED_BACK},
    _P.RETIRING: {_E.DONE: _P.SUCCEEDED, **_AFTER, _E.FAILED: _P.STUCK},
    _P.ROLLING_BACK: {_E.DONE: _P.ROLLED_BACK, _E.FAILED: _P.STUCK, _E.RESTART: _P.ROLLING_BACK},
}
"""Where each legal event leads from a phase; `done` after the last effect of the phase. A phase without a row is final.

A final phase is reached by way of `rolling_back` unless the phase is one of `UNTOUCHED`; `stuck` after `ATTEMPTS`.
"""
FINAL: Final = frozenset({*OperationPhase} - TABLE.keys())
UNTOUCHED: Final = frozenset({_P.QUEUED, _P.PREFLIGHT})
"""Phases in which an operation has changed nothing yet, so that ending it undoes nothing."""
SWITCHED: Final = frozenset({_P.SWITCHING, _P.RESUMING, _P.DRAINING, _P.BAKING, _P.RETIRING})
"""The alias points to the candidate."""
AHEAD: Final = frozenset({_P.RESUMING, _P.DRAINING, _P.BAKING})
"""Their effects lead to what the registry names already, or only watch."""


Steps = tuple[tuple[Action, str] | tuple[Action, str, int], ...]
"""Actions, the engines that they are for, and the weight of a share, in order."""


def _steps(state: OperationState) -> Steps:
    """The effects of a phase. A rollback is neither warmed, questioned nor baked: its target has served before."""
    plan = state.plan
    new, old, candidate = plan.new, plan.old, plan.candidate
    promoted = new if plan.kind is OperationKind.PROMOTE else ()
    shares = tuple((Action.SHARE, candidate, weight) for weight in plan.shift_weights if plan.shifts)
    effects: dict[OperationPhase, Steps] = {
        _P.PREFLIGHT: _each(new, Action.CHECK),
        # The lease comes first, so that nothing is stopped only to wait for another model's load.
        _P.ADMITTED: ((Action.LEASE, candidate), *_make_room(plan, old), (Action.ADMIT, candidate)),
        # A replica is admitted once those before it have their memory.
        _P.STARTING: ((Action.START, candidate), *_each(plan.candidates, Action.ADMIT, Action.START)),
        _P.HEALTHY: _each(new, Action.IDENTIFY, Action.RECHECK),
        _P.WARMING: _each(promoted, Action.WARM),
        _P.CANARY: _each(promoted, Action.PROBE, Action.IDENTIFY, Action.RECHECK),
        _P.SHIFTING: (*shares, *_each(new[:1] if shares else (), Action.RECHECK)),
        _P.SWITCHING: ((Action.ROUTE, candidate),),
        _P.RESUMING: (*_each(new, Action.START), (Action.ROUTE, candidate)),
        _P.DRAINING: _each(old, Action.DRAIN),
        _P.BAKING: (*_each(promoted[:1], Action.WATCH), *_each(promoted, Action.RECHECK)),
        _P.RETIRING: _stop(plan, old),
        _P.ROLLING_BACK: _undo(plan, has_served=state.outcome is _P.ROLLED_BACK),
    }
    return effects.get(state.phase, ())


def _undo(plan: OperationPlan, has_served: bool) -> Steps:
    """The old engines serve again, and the new ones have stopped. No-op for an old one that serves."""
    old_serve = (*_each(plan.old, Action.START), (Action.ROUTE, plan.incumbent))
    if plan.strategy == "blue_green" and (has_served or plan.shifts):
        return (*old_serve, *_each(plan.new, Action.DRAIN), *_stop(plan, plan.new))
    return (*(_make_room(plan, plan.new) if has_served else _stop(plan, plan.new)), *old_serve)


def _make_room(plan: OperationPlan, engines: tuple[str, ...]) -> Steps:
    """With stop-then-start: the fallback serves, and the memory of the engines that served is freed."""
    if plan.strategy == "blue_green" or plan.fallback is None:
        return ()
    return ((Action.ROUTE, plan.fallback), *_each(engines, Action.DRAIN), *_stop(plan, engines))


def _stop(plan: OperationPlan, engines: Iterable[str]) -> Steps:
    return _each((engine for engine in engines if engine not in plan.resident), Action.STOP)


def _each(engines: Iterable[str], *actions: Action) -> Steps:
    return tuple((action, engine) for engine in engines for action in actions)


def path(plan: OperationPlan) -> tuple[OperationPhase, ...]:
    """The phases of this operation if nothing goes wrong."""
    phases, (state, _) = [_P.QUEUED], step(OperationState(plan), _E.BEGIN)
    while not state.is_done:
        phases.append(state.phase)
        state, _ = _enter(state, TABLE[state.phase][_E.DONE])
    return (*phases, state.phase)


class Transition(NamedTuple):
    """The result of an event; `state` and the `change` of the aliases are committed in one transaction."""

    state: OperationState
    change: RouteChange | None = None


def step(state: OperationState, event: OperationEvent, fault: FailureReason | None = None) -> Transition:
    """The operation after an event, and its reason. Raises ValueError: it cannot happen now."""
    if not state.takes(event):
        raise ValueError(f"{event} while {state.phase}")
    to = TABLE[state.phase][event]
    if event is _E.DONE:
        after = replace(state, at=state.at + 1, tries=0)
        return Transition(after) if after.effect else _enter(after, state.outcome or to)
    if to is _P.STUCK and state.tries + 1 < ATTEMPTS:
        return Transition(replace(state, tries=state.tries + 1))
    if event is _E.RESTART and to is _P.FAILED:
        fault = FailureReason("interrupted", f"the gateway was stopped while {state.phase}")
    after = replace(state, fault=fault or state.fault)
    # Also if nothing was begun: after a restart the incumbent has to be started and routed to.
    begun = state.phase not in UNTOUCHED or event is _E.RESTART
    if to not in FINAL or to is _P.STUCK or not begun:
        return _enter(after, to)
    plan, change = state.plan, None
    if state.phase in SWITCHED:
        change = RouteChange(plan.model, plan.incumbent, plan.previous, plan.generation + 1)
    return _enter(replace(after, outcome=to), _P.ROLLING_BACK, change)


def _enter(state: OperationState, phase: OperationPhase, change: RouteChange | None = None) -> Transition:
    after, plan = replace(state, phase=phase, at=0, tries=0), state.plan
    if phase is _P.SWITCHING:
        # An engine that was rolled back from comes back only by a new promotion.
        previous = plan.incumbent if plan.kind is OperationKind.PROMOTE else None
        change = RouteChange(plan.model, plan.candidate, previous, plan.generation)
    if after.effect is None and phase in TABLE:  # the phase has nothing to do in this plan
        return _enter(after, TABLE[phase][_E.DONE], change)
    return Transition(after, change)
