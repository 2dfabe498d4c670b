"""The effects that look at a candidate: the door, what runs, how it answers, how it behaves alive."""

import asyncio
from datetime import UTC, datetime

from app.promotion import door, watching
from app.promotion.effects import Effect
from app.promotion.facts import gather, records
from app.promotion.outcome import EffectRefused
from app.promotion.phases import Fault
from app.promotion.plan import Kind, Plan
from app.promotion.site import Evidence, Site
from app.registry.reader import Reader


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
    """It behaved for `bake_s` of live traffic. Raises Breach."""
    name, before = site.shelf.name(effect.engine), site.shelf.name(plan.incumbent)

    def gone() -> str | None:
        return None if site.fleet.is_up(name) else site.fleet.trouble(name)

    return await watching.watch(site.ear, plan.model, name, before, plan.bake_s, gone=gone)
