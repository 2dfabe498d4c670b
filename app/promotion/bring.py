"""The effects that move engines and requests: start, stop, route, drain. Each can be run again.

An engine that some model's requests may still go to is neither drained nor stopped, whatever the
plan says: a plan can be older than another operation's switch.
"""

import asyncio
import time

from app.promotion.effects import Effect
from app.promotion.outcome import EffectFailed
from app.promotion.phases import Fault
from app.promotion.plan import Plan
from app.promotion.site import Evidence, Site
from deploy.core.errors import DeployError, LeaseHeld
from deploy.engine.spec import EngineSpec

LEASE_SECONDS = 0.25
"""How often a lease that somebody else holds is asked for again."""


async def lease(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """This operation holds the one loading lease."""
    began = time.monotonic()
    await _take(site, plan)
    return {"seconds": _since(began)}


async def release(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """This operation holds no lease."""
    site.room.lease.release(plan.operation)
    return {}


async def admit(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """The memory for it is there; it has it already if it runs."""
    spec = site.shelf.spec(effect.engine)
    if site.pool.is_up(spec.name):
        return {"engine": spec.name, "runs": True}
    return await asyncio.to_thread(site.room.admit, spec)


async def start(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It runs and streams; left alone if it does, else loaded under the lease."""
    began = time.monotonic()
    spec = site.shelf.spec(effect.engine)
    try:
        if not site.pool.is_up(spec.name):
            await _take(site, plan)
            await _load(site, plan, effect, spec)
    except DeployError as error:
        why = str(error).splitlines()[0]
        code = "memory_floor" if "memory_floor" in why else "start_failed"  # the guard's word
        raise EffectFailed(Fault(code, why)) from None
    state = site.pool.states()[spec.name]
    return {"engine": spec.name, "pid": state.pid, "seconds": _since(began)}


async def _take(site: Site, plan: Plan) -> None:
    while True:
        try:
            return site.room.lease.take(plan.operation)
        except LeaseHeld:
            await asyncio.sleep(LEASE_SECONDS)


async def _load(site: Site, plan: Plan, effect: Effect, spec: EngineSpec) -> None:
    """A candidate is ended before the host wedges; who served before is not."""
    if effect.engine != plan.candidate:
        return await site.pool.bring_up(spec, plan.model)
    with site.room.loading(site.pool.engine(spec, plan.model)):
        await site.pool.bring_up(spec, plan.model)


async def route(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """New requests of the model go to it; it is up by then, or this fails and they go on where they went."""
    evidence = await start(site, plan, effect)
    name = site.shelf.name(effect.engine)
    before = site.pool.model_route(plan.model).live
    site.pool.route(plan.model, name)
    if plan.report is not None and effect.engine == plan.candidate:
        site.pool.trust(name)
    site.reply_window.switched(plan.model, name)
    return {**evidence, "before": before}


async def drain(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It has no request left. No reply may take longer than `total`, so that none is cut off."""
    name = site.shelf.name(effect.engine)
    if site.pool.serves(name):
        return {"engine": name, "serves": True}
    began = time.monotonic()
    seconds = max(model.timeouts.total for model in site.config.models.values())
    waiting = site.pool.open(name)
    left = await site.pool.drain(name, seconds)
    return {"engine": name, "requests": waiting, "left": left, "seconds": _since(began)}


async def stop(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """Nothing of it is left."""
    name = site.shelf.name(effect.engine)
    if site.pool.serves(name):
        return {"engine": name, "serves": True}
    began = time.monotonic()
    await site.pool.take_down(name)
    back = await site.room.came_back(name)
    return {"engine": name, "seconds": _since(began), "memory_came_back": back}


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
