"""The handlers of effects: what each action of an operation does. Each can be run again without harm.

An engine to which requests of some model may go is neither drained nor stopped: a plan can be older than another
operation's switch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Final

from app.config.config import Config
from app.engines.heard import hearing
from app.engines.identity import target_of
from app.engines.pool import EnginePool
from app.promotion import canary, eligibility, inspection, overrides
from app.promotion.bake import ALPHA, BakeLimits
from app.promotion.facts import RegistryRecords, collect, gates_in_force, opened, records
from app.promotion.memory_admission import MemoryAdmission
from app.promotion.repository import RegistryExecutor, rests_on_report
from app.promotion.requests import ModelSnapshot, snapshot
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import (
    Action,
    Effect,
    EffectError,
    EffectEvidence,
    FailureReason,
    OperationKind,
    OperationPlan,
    RefusalError,
)
from app.promotion.watch import ReplyWatch
from app.registry.errors import StorageFailed
from app.telemetry.reply_window import ReplyWindow
from deploy.core.errors import DeployError, LeaseHeld
from deploy.engine.engine import EngineState
from gates.contracts.errors import ReportError
from gates.report import checks
from gates.report.files import VerifiedReport

ANSWER_SECONDS = 0.5
"""How long a rollback waits for the registry; then it relies on what the registry said last."""
LEASE_SECONDS = 0.25
"""How often to ask again for a lease that another operation holds."""


@dataclass(slots=True)
class Dependencies:
    """The parts of one gateway that the handlers work on. A reload replaces `config`.

    `plans` are those of the running operations, and `known` what the registry said last, by model.
    """

    config: Config
    pool: EnginePool
    catalogue: SpecCatalogue
    registry: RegistryExecutor
    memory: MemoryAdmission
    reply_window: ReplyWindow
    plans: dict[str, OperationPlan] = field(default_factory=dict)
    known: dict[str, ModelSnapshot] = field(default_factory=dict)

    async def snapshot(self, model: str) -> ModelSnapshot:
        """What the registry says of a model; if it does not answer, what it said last."""
        with suppress(StorageFailed, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                self.known[model] = await self.registry.run(lambda registry: snapshot(registry, model))
        return self.known[model]

    async def remember(self, config: Config | None = None) -> None:
        """Read what a rollback of each model needs, so that it needs no registry later."""
        for model in (config or self.config).models:
            await self.snapshot(model)

    def is_needed(self, plan: OperationPlan, engine: str) -> bool:
        """Whether requests of some model may go to an engine of this plan, or another model's operation is about it."""
        others = (other for other in self.plans.values() if other.model != plan.model)
        return self.pool.serves(self.catalogue.name(engine)) or any(
            engine in (*other.new, *other.old) for other in others
        )


Handler = Callable[[Dependencies, OperationPlan, Effect], Awaitable[EffectEvidence]]
"""Brings an effect about. Raises EffectError; a check also RefusalError, the bake also BreachError."""


async def check(
    deps: Dependencies, plan: OperationPlan, effect: Effect, reads_weights: bool = True
) -> EffectEvidence:
    """Check that the candidate and each of its replicas are eligible, by a report or because they served before.

    RECHECK asks again, later: whether something was revoked since, or an override has ended. Of an engine that serves
    already, only what no override can waive counts then.
    """
    if plan.kind is OperationKind.ROLLBACK:
        found = await deps.snapshot(plan.model)
        if fault := eligibility.refusal_of_rollback(found.engines[effect.engine], found.revocations):
            raise RefusalError(fault)
        return {"previous": effect.engine}
    recorded, spec = await _records(deps, plan), deps.catalogue[effect.engine]
    facts = await asyncio.to_thread(collect, recorded, deps.config, spec, reads_weights=reads_weights)
    if effect.action is Action.CHECK or spec.name not in deps.pool.model_route(plan.model).live:
        return eligibility.check(facts, recorded.waived)
    evidence = eligibility.check(facts, overrides.WAIVABLE)
    evidence.pop("waived", None)
    return evidence


async def _records(deps: Dependencies, plan: OperationPlan) -> RegistryRecords:
    """The registry's records of a plan's report, with the refusals that overrides waive now."""
    return await deps.registry.run(lambda registry: records(registry, plan, datetime.now(UTC)))


async def lease(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """This operation holds the one loading lease, if it has an engine to load."""
    while any(_loads(deps, engine) for engine in plan.new):
        try:
            deps.memory.lease.take(plan.operation)
            break
        except LeaseHeld:
            await asyncio.sleep(LEASE_SECONDS)
    return {}


def _loads(deps: Dependencies, engine: str) -> bool:
    """Whether a start would take memory of this host."""
    spec = deps.catalogue[engine]
    return spec.driver != "url" and not deps.pool.is_up(spec.name)


async def admit(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """There is memory for the engine; if it runs, it has it already."""
    spec = deps.catalogue[effect.engine]
    if deps.pool.is_up(spec.name):
        return {"engine": spec.name, "runs": True}
    return await asyncio.to_thread(deps.memory.admit, spec)


async def start(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """The engine runs and streams; loaded under the lease, which ends with the load.

    If the host runs short of memory meanwhile, a candidate is killed, and an engine that served before is not.
    """
    spec = deps.catalogue[effect.engine]
    try:
        lease = deps.memory.lease.held(plan.operation, wait_s=inf)
        async with lease if _loads(deps, effect.engine) else nullcontext():
            backend = deps.pool.backend(spec, plan.model)
            watches = effect.engine in plan.new and not backend.is_up
            with deps.memory.guarding(backend.make(), loads=True) if watches else nullcontext():
                await backend.up()
    except DeployError as error:
        why = str(error).splitlines()[0]
        code = "memory_floor" if "memory_floor" in why else "start_failed"  # the memory guard's code
        raise EffectError(FailureReason(code, why)) from None
    deps.memory.lease.release(plan.operation)
    return {"engine": spec.name, "pid": deps.pool.states()[spec.name].pid}


async def stop(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """The engine has ended."""
    name = deps.catalogue.name(effect.engine)
    if deps.is_needed(plan, effect.engine):
        return {"engine": name, "serves": True}
    await deps.pool.take_down(name)
    return {"engine": name, "memory_came_back": await deps.memory.wait_freed(name)}


async def route(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """New requests of the model go to the engine and its replicas. If it cannot be brought up, the old route stays."""
    evidence = await start(deps, plan, effect)
    before = deps.pool.model_route(plan.model).first
    sets = {plan.candidate: plan.new, plan.incumbent: plan.old}
    engines = sets.get(effect.engine, (effect.engine,))
    names = [deps.catalogue.name(engine) for engine in engines]
    await _trust(deps, plan, [engine for engine in engines if engine in plan.new])
    for name in names:  # identified when it joined; after a restart it will be (`ReplicaWatch`)
        deps.pool.identify(name)
    deps.pool.route(plan.model, *names)
    deps.reply_window.switched(plan.model, *names)
    return {**evidence, "before": before}


async def _trust(deps: Dependencies, plan: OperationPlan, new: Collection[str]) -> None:
    """Replies of new engines that a report let in need not be held back."""
    asks = new and plan.kind is OperationKind.PROMOTE
    gated = await deps.registry.run(lambda registry: rests_on_report(registry, plan)) if asks else False
    for engine in new if gated else ():
        deps.pool.trust(deps.catalogue.name(engine))


async def drain(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """The engine has no open request. The wait is the longest `total` timeout, so that no reply is cut off."""
    name = deps.catalogue.name(effect.engine)
    if deps.is_needed(plan, effect.engine):
        return {"engine": name, "serves": True}
    seconds = max(model.timeouts.total for model in deps.config.models.values())
    waiting = deps.pool.open(name)
    return {"engine": name, "requests": waiting, "left": await deps.pool.drain(name, seconds)}


async def identify(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """The running engine is what the report and the spec say, and computes with what the report states."""
    spec = deps.catalogue[effect.engine]
    engine = deps.pool.backend(spec, plan.model).make()
    if plan.report is None:  # it has to match the configuration
        return await inspection.identify(engine, spec)
    recorded = await _records(deps, plan)
    report = await asyncio.to_thread(opened, recorded, deps.config.state_dir)
    stated = report.statement if isinstance(report, VerifiedReport) else None
    # So has an engine that was let in with a report of another one.
    judged = stated.candidate.engine if stated and "mismatch_engine" not in recorded.waived else None
    evidence = await inspection.identify(engine, spec, judged)
    if stated is None or "mismatch_numerics" in recorded.waived:
        return evidence
    _, policy = await asyncio.to_thread(gates_in_force, deps.config)
    found = (await engine.describe())["numerics"]
    try:
        permitted = checks.numerics(stated, found, engine.name, policy.numerics, runs=True)
    except ReportError as error:
        raise RefusalError(FailureReason(error.code, str(error))) from None
    return {**evidence, **({"differs": list(permitted)} if permitted else {})}


async def warm(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """It answers every request shape; killed if the host runs short of memory meanwhile."""
    spec, state = deps.catalogue[effect.engine], _ready_state(deps, effect)
    thinking, context = deps.config.models[plan.model].thinking != "off", state.abilities.context
    with deps.memory.guarding(deps.pool.backend(spec, plan.model).make()):
        return await canary.warm(
            target_of(spec, state), deps.config.promotion, thinking=thinking, context=context
        )


async def probe(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """It answers the canary's questions, judged by the replies that the policy judges."""
    spec = deps.catalogue[effect.engine]
    suite, policy = await asyncio.to_thread(gates_in_force, deps.config)
    state = _ready_state(deps, effect)
    target = target_of(spec, state)
    if policy.judged == "through":
        heard = hearing(deps.config.models[plan.model], spec.dialect, state.abilities)
        target = replace(target, hearing=heard)
    return await canary.probe(target, canary.canary_for(suite))


def _ready_state(deps: Dependencies, effect: Effect) -> EngineState:
    """The state of an engine that streams. Raises EffectError."""
    name = deps.catalogue.name(effect.engine)
    state = deps.pool.states().get(name)
    if state is None or state.url is None:
        raise EffectError(FailureReason("engine_down", f"{name} is not up: {deps.pool.trouble(name)}"))
    return state


async def share(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """The candidate has behaved for `shift_s` with this share of the model's conversations. Raises BreachError."""
    window, name = deps.reply_window, deps.catalogue.name(effect.engine)
    await _trust(deps, plan, (effect.engine,))
    deps.pool.shift(plan.model, name, effect.weight)
    window.switched(plan.model, *deps.pool.model_route(plan.model).live, name)
    # Each weight is a test of its own: together they send a good model back as seldom as one bake does.
    # A small share brings few replies, so no number of them is required.
    slow = deps.config.promotion.bake_slow_factor
    limits = BakeLimits(slow_factor=slow, alpha=ALPHA / len(plan.shift_weights), enough=0)
    return {"weight": effect.weight, **await _watch_one(deps, plan, effect.engine, plan.shift_s, limits)}


async def watch(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """It has behaved in live traffic for `bake_s`. Raises BreachError."""
    limits = BakeLimits(slow_factor=deps.config.promotion.bake_slow_factor)
    try:
        async with asyncio.TaskGroup() as group:
            watches = [
                group.create_task(_watch_one(deps, plan, engine, plan.bake_s, limits)) for engine in plan.new
            ]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one; it ended the others
    found = [watch.result() for watch in watches]
    if len(found) == 1:
        return found[0]
    return {"replicas": dict(zip(map(deps.catalogue.name, plan.new), found, strict=True))}


async def _watch_one(
    deps: Dependencies, plan: OperationPlan, engine: str, seconds: float, limits: BakeLimits
) -> EffectEvidence:
    """One of the candidates has behaved for so long."""
    names = deps.catalogue.name(engine), deps.catalogue.name(plan.incumbent)
    down = partial(deps.pool.trouble, names[0])
    effect = Effect("", Action.PROBE, engine)

    async def ask() -> EffectEvidence:
        return await HANDLERS[Action.PROBE](deps, plan, effect)

    watch = ReplyWatch(deps.reply_window, plan.model, *names, limits=limits, down=down, probe=ask)
    return await watch.run(seconds)


_TABLE: Final[Mapping[Action, tuple[Handler, float | None]]] = {
    Action.CHECK: (check, 900.0),
    Action.RECHECK: (partial(check, reads_weights=False), 60.0),
    Action.LEASE: (lease, 1800.0),
    Action.ADMIT: (admit, 300.0),
    Action.START: (start, 3600.0),
    Action.IDENTIFY: (identify, 900.0),
    Action.WARM: (warm, 900.0),
    Action.PROBE: (probe, 600.0),
    Action.SHARE: (share, None),
    Action.ROUTE: (route, 3600.0),
    Action.DRAIN: (drain, None),
    Action.STOP: (stop, 300.0),
    Action.WATCH: (watch, None),
}
"""Handlers, and the seconds until an effect counts as failed; hashing, loading and compiling a large engine takes minutes.
None: it ends by its own bounds."""
HANDLERS: Final = {action: handler for action, (handler, _) in _TABLE.items()}
TIMEOUTS: Final = {action: seconds for action, (_, seconds) in _TABLE.items() if seconds}
