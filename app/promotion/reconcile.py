"""What to bring about at start, before the first request: which engines run, and which serves. Pure.

A model with an unfinished operation is left to `machine.recover`, whose effects bring up and route
whatever has to serve. Every other model gets the engine that its `live` alias names. Engines that
run and that nobody wants are orphans: they are stopped first, since their memory may be needed. An
engine that runs and is wanted is adopted: `start` leaves it alone, and callers notice nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from app.promotion.effects import Effect, Verb
from app.promotion.machine import Machine


def reconcile(
    live: Mapping[str, str],
    unfinished: Iterable[Machine],
    resident: Collection[str],
    running: Collection[str],
) -> tuple[Effect, ...]:
    """Effects to run in order, and then each unfinished operation's own.

    `live` is the engine of each model's live alias, `unfinished` the operations as they were found,
    `resident` the engines that are to run whoever is live (fallbacks), `running` those that were
    found running.
    """
    plans = {machine.plan.model: machine.plan for machine in unfinished}
    settled = {model: engine for model, engine in live.items() if model not in plans}
    involved = {engine for plan in plans.values() for engine in (plan.candidate, plan.incumbent)}
    wanted = {*settled.values(), *resident}
    orphans = [_effect(Verb.STOP, engine) for engine in sorted({*running} - wanted - involved)]
    starts = [_effect(Verb.START, engine) for engine in sorted(wanted)]
    routes = [_effect(Verb.ROUTE, engine, model) for model, engine in sorted(settled.items())]
    return (*orphans, *starts, *routes)


def _effect(verb: Verb, engine: str, model: str = "") -> Effect:
    return Effect(f"start/{model}/{verb}/{engine}", verb, engine)
