"""The effects that move engines and requests: start, stop, route, drain. Each can be run again.

An engine that some model's requests may still go to is neither drained nor stopped, whatever the
plan says: a plan can be older than another operation's switch.
"""

import time

from app.promotion.effects import Effect
from app.promotion.outcome import EffectFailed
from app.promotion.phases import Fault
from app.promotion.plan import Plan
from app.promotion.site import Evidence, Site
from deploy.errors import DeployError


async def start(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It runs and streams; left alone if it does."""
    began = time.monotonic()
    spec = site.shelf.spec(effect.engine)
    try:
        await site.fleet.bring_up(spec, plan.model)
    except DeployError as error:
        raise EffectFailed(Fault("start_failed", str(error).splitlines()[0])) from None
    state = site.fleet.states()[spec.name]
    return {"engine": spec.name, "pid": state.pid, "seconds": _since(began)}


async def route(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """New requests of the model go to it; it is up by then, or this fails and they go on where they went."""
    evidence = await start(site, plan, effect)
    name = site.shelf.name(effect.engine)
    before = site.fleet.way(plan.model).live
    site.fleet.route(plan.model, name)
    return {**evidence, "before": before}


async def drain(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It has no request left. No reply may take longer than `total`, so that none is cut off."""
    name = site.shelf.name(effect.engine)
    if site.fleet.serves(name):
        return {"engine": name, "serves": True}
    began = time.monotonic()
    seconds = max(model.timeouts.total for model in site.config.models.values())
    waiting = site.fleet.open(name)
    left = await site.fleet.drain(name, seconds)
    return {"engine": name, "requests": waiting, "left": left, "seconds": _since(began)}


async def stop(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """Nothing of it is left."""
    name = site.shelf.name(effect.engine)
    if site.fleet.serves(name):
        return {"engine": name, "serves": True}
    began = time.monotonic()
    await site.fleet.take_down(name)
    return {"engine": name, "seconds": _since(began)}


async def nothing(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """One operation runs at a time, so that nobody else loads an engine meanwhile."""
    return {}


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
