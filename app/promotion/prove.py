"""The effects that look at a candidate: the door, what runs, how it answers, how it behaves alive."""

import asyncio
from datetime import UTC, datetime

from app.promotion import canary, door, waivers, watching
from app.promotion import identify as identification
from app.promotion import warm as warming
from app.promotion.canary import Canary
from app.promotion.effects import Effect
from app.promotion.facts import gather, judged, records
from app.promotion.law import suite_in_force
from app.promotion.outcome import EffectFailed, EffectRefused
from app.promotion.phases import Fault
from app.promotion.plan import Kind, Plan
from app.promotion.site import Evidence, Site
from app.promotion.warm import Limits, Served
from app.registry.reader import Reader
from deploy.engine.engine import EngineState
from deploy.engine.spec import Dialect, EngineSpec
from gates.contracts.errors import SuiteError


async def check(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It may be brought in: by its report, or because it served before."""
    if plan.kind is Kind.ROLLBACK:
        fault = await site.archive.do(lambda registry: _rollback_fault(registry, plan))
        if fault is not None:
            raise EffectRefused(fault)
        return {"previous": plan.candidate}
    found = await site.archive.do(lambda registry: records(registry, plan.report))
    waived = await site.archive.do(lambda registry: waivers.waived(registry, plan))
    spec = site.shelf.spec(plan.candidate)
    facts = await asyncio.to_thread(
        gather,
        found,
        spec,
        gates=site.config.gates,
        state_dir=site.config.state_dir,
        now=datetime.now(UTC),
        baseline=_baseline(site, plan),
    )
    return door.check(facts, waived)


def _baseline(site: Site, plan: Plan) -> EngineSpec | None:
    model = site.config.models.get(plan.model)
    return site.config.engines[model.baseline] if model is not None and model.baseline else None


def _rollback_fault(reader: Reader, plan: Plan) -> Fault | None:
    return door.refusal_of_rollback(
        plan.candidate,
        reader.alias(plan.model, "previous"),
        reader.engine(plan.candidate),
        reader.revocations(),
    )


async def identify(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """What runs is what the report and the spec say."""
    spec = site.shelf.spec(effect.engine)
    _up(site, effect)
    reported = None
    if plan.report is not None:
        found = await site.archive.do(lambda registry: records(registry, plan.report))
        waived = await site.archive.do(lambda registry: waivers.waived(registry, plan))
        if "mismatch_engine" not in waived:  # else it is to be what the configuration says
            reported = await asyncio.to_thread(judged, found, site.config.state_dir)
    return await identification.identify(site.pool.engine(spec, plan.model), spec, reported)


async def warm(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It answers the served shapes in settled times; ended, if the host runs short meanwhile."""
    spec, asked = site.shelf.spec(effect.engine), site.config.promotion
    state = _up(site, effect)
    served = Served(
        buckets=asked.warm_tokens,
        concurrency=asked.warm_at_once,
        thinking=site.config.models[plan.model].thinking != "off",
    )
    limits = Limits(seconds=asked.warm_seconds, tolerance=asked.settle)
    with site.room.watching(site.pool.engine(spec, plan.model)):
        return await warming.warm(
            *_address(state, spec), context=state.abilities.context, served=served, limits=limits
        )


async def probe(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It answers the canary's questions."""
    spec = site.shelf.spec(effect.engine)
    return await canary.probe(*_address(_up(site, effect), spec), await _questions(site))


async def _questions(site: Site) -> Canary:
    """Of the suite in force. Raises EffectFailed."""
    try:
        return await asyncio.to_thread(lambda: canary.canary_for(suite_in_force(site.config.gates.suite)))
    except (SuiteError, OSError) as error:
        raise EffectFailed(Fault("gates_unreadable", str(error))) from None


def _up(site: Site, effect: Effect) -> EngineState:
    """An engine that streams. Raises EffectFailed."""
    name = site.shelf.name(effect.engine)
    state = site.pool.states().get(name)
    if state is None or state.url is None:
        raise EffectFailed(Fault("engine_down", f"{name} is not up: {site.pool.trouble(name)}"))
    return state


def _address(state: EngineState, spec: EngineSpec) -> tuple[str, str, Dialect]:
    """What an engine is asked at and as."""
    assert state.url is not None
    return state.url, state.model or spec.name, spec.dialect


async def watch(site: Site, plan: Plan, effect: Effect) -> Evidence:
    """It behaved for `bake_s` of live traffic. Raises Breach."""
    name, before = site.shelf.name(effect.engine), site.shelf.name(plan.incumbent)

    def gone() -> str | None:
        return None if site.pool.is_up(name) else site.pool.trouble(name)

    return await watching.watch(
        site.reply_window,
        plan.model,
        name,
        before,
        plan.bake_s,
        gone=gone,
        probe=lambda: probe(site, plan, effect),
    )
