"""What each phase of an operation brings about, by plan: verbs and engines, in order. Pure.

Every effect is idempotent: it brings something about ("this engine runs", "new requests go there"),
so that running it again changes nothing. Its key is the same whenever the same thing is meant.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.promotion.phases import Phase
from app.promotion.plan import Plan, Strategy


class Verb(StrEnum):
    """What an effect brings about; the engine is the one that it names."""

    CHECK = "check"  # the door: report, digests, lineage, revocation, generation
    LEASE = "lease"  # this operation holds the one loading lease
    ADMIT = "admit"  # the memory for it is there
    START = (
        "start"  # it runs and streams; left alone if it does, else loaded under the lease, taken if need be
    )
    IDENTIFY = "identify"  # what runs is what the report and the spec say
    WARM = "warm"  # it answers the served shapes in settled times
    PROBE = "probe"  # it answers the canary's questions
    ROUTE = "route"  # new requests of the model go to it
    DRAIN = "drain"  # it has no request left; bounded, cuts off what is left at the end
    STOP = "stop"  # nothing of it is left, and its memory has come back
    RELEASE = "release"  # this operation holds no lease
    WATCH = "watch"  # it has behaved for `bake_s` of live traffic


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to be brought about. `key` is stable: `OPERATION/PHASE/VERB/ENGINE`."""

    key: str
    verb: Verb
    engine: str


Work = tuple[tuple[Verb, str], ...]

_NEW: Final[Mapping[Phase, tuple[Verb, ...]]] = {
    Phase.PREFLIGHT: (Verb.CHECK,),
    Phase.STARTING: (Verb.START,),
    Phase.HEALTHY: (Verb.IDENTIFY,),
    Phase.WARMING: (Verb.WARM,),
    Phase.CANARY: (Verb.PROBE, Verb.IDENTIFY),
    Phase.SWITCHING: (Verb.ROUTE,),
    Phase.RESUMING: (Verb.START, Verb.ROUTE),
    Phase.BAKING: (Verb.WATCH,),
}
"""The phases that concern the candidate alone."""


def effects(plan: Plan, phase: Phase, outcome: Phase | None) -> tuple[Effect, ...]:
    """What a phase brings about, in order; `outcome` is how an operation that rolls back will end."""
    return tuple(
        Effect(f"{plan.operation}/{phase}/{verb}/{engine}", verb, engine)
        for verb, engine in _work(plan, phase, outcome)
    )


def _work(plan: Plan, phase: Phase, outcome: Phase | None) -> Work:
    if phase in _NEW:
        return tuple((verb, plan.candidate) for verb in _NEW[phase])
    if phase is Phase.ROLLING_BACK:
        return _way_back(plan) if outcome is Phase.ROLLED_BACK else _undo(plan)
    make = _BOTH.get(phase)
    return make(plan) if make else ()


def _admission(plan: Plan) -> Work:
    """The lease comes first, so that nothing is stopped to wait for another model's load."""
    room: Work = ()
    if plan.strategy is Strategy.STOP_THEN_START:
        room = _detour(plan, plan.incumbent)
    return ((Verb.LEASE, plan.candidate), *room, (Verb.ADMIT, plan.candidate))


def _drain(plan: Plan) -> Work:
    # Where it was stopped first, its requests have ended already.
    drained: Work = ((Verb.DRAIN, plan.incumbent),) if plan.strategy is Strategy.BLUE_GREEN else ()
    return (*drained, (Verb.RELEASE, plan.candidate))


def _retire(plan: Plan) -> Work:
    return _stop(plan, plan.incumbent)


_BOTH: Final[Mapping[Phase, Callable[[Plan], Work]]] = {
    Phase.ADMITTED: _admission,
    Phase.DRAINING: _drain,
    Phase.RETIRING: _retire,
}


def _undo(plan: Plan) -> Work:
    """Nobody was served by the candidate. The incumbent may run and serve; then this changes nothing."""
    return (*_stop(plan, plan.candidate), *_incumbent_serves(plan), (Verb.RELEASE, plan.candidate))


def _way_back(plan: Plan) -> Work:
    """People are served by the candidate."""
    if plan.strategy is Strategy.STOP_THEN_START:
        back = (*_detour(plan, plan.candidate), *_incumbent_serves(plan))
    else:
        drained: Work = ((Verb.DRAIN, plan.candidate),)
        back = (*_incumbent_serves(plan), *drained, *_stop(plan, plan.candidate))
    return (*back, (Verb.RELEASE, plan.candidate))


def _incumbent_serves(plan: Plan) -> Work:
    return ((Verb.START, plan.incumbent), (Verb.ROUTE, plan.incumbent))


def _detour(plan: Plan, around: str) -> Work:
    """The fallback serves, and the memory of the engine that served is free."""
    assert plan.fallback is not None  # a plan that stops first has one
    return ((Verb.ROUTE, plan.fallback), (Verb.DRAIN, around), (Verb.STOP, around))


def _stop(plan: Plan, engine: str) -> Work:
    return () if engine in plan.resident else ((Verb.STOP, engine),)
