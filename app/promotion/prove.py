"""The effects that look at a candidate: the door, what runs, how it answers, how it behaves alive."""

import asyncio
from datetime import UTC, datetime

from app.promotion import door
from app.promotion.effects import Effect
from app.promotion.facts import gather, records
from app.promotion.outcome import Breach, EffectRefused
from app.promotion.phases import Fault
from app.promotion.plan import Kind, Plan
from app.promotion.site import Evidence, Site
from app.registry.reader import Reader

LOOK_SECONDS = 0.5
"""How often a watch looks whether the engine still streams."""


async def check(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It may be brought in: by its report, or because it served before."""
    if plan.kind is Kind.ROLLBACK:
        fault = await site.archive.do(lambda registry: _rollback_fault(registry, plan))
        if fault is not None:
            raise EffectRefused(fault)
        return {"previous": plan.candidate}
    found = await site.archive.do(lambda registry: records(registry, plan.report))
    spec = site.shelf.spec(plan.candidate)
    facts = await asyncio.to_thread(
        gather,
        found,
        spec,
        gates=site.config.gates,
        state_dir=site.config.state_dir,
        now=datetime.now(UTC),
    )
    return door.check(facts)


def _rollback_fault(reader: Reader, plan: Plan) -> Fault | None:
    return door.refusal_of_rollback(
        plan.candidate,
        reader.alias(plan.model, "previous"),
        reader.engine(plan.candidate),
        reader.revocations(),
    )


async def seen(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It streams."""
    return {"engine": site.shelf.name(effect.engine)}


async def watch(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It went on streaming for `bake_s`. Raises Breach."""
    name = site.shelf.name(effect.engine)
    end = asyncio.get_running_loop().time() + plan.bake_s
    while (left := end - asyncio.get_running_loop().time()) > 0:
        if not site.fleet.is_up(name):
            raise Breach(Fault("engine_down", f"{name} does not stream any more"))
        await asyncio.sleep(min(LOOK_SECONDS, left))
    return {"engine": name, "seconds": plan.bake_s}
