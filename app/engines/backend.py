"""One engine of the pool: wanted or not, health-checked, and reached through its routes.

The driver (`deploy.drivers`) starts and restarts the engine. It is ready when it streams, and stays ready while tokens are
seen: of live requests, or of a probe when it is idle. Four owners of evidence decide what it gets: the breaker after failed
requests and probes, the outlier detector after failures that probes do not show, the count of silent probes (a process that
lives and answers none is replaced), and the behaviour probe, for which a reply that breaks a rule asks.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from app.api.engine_request import AskedEngine
from app.engines.behaviour import QUESTIONS, ask_questions
from app.engines.breaker import Breaker, BreakerEvent, BreakerState, step
from app.engines.outlier import OutlierDetector
from app.errors.translate import is_context_exceeded
from app.errors.tree import UpstreamError
from app.stream.audit import unasked_thought
from app.stream.thinking_control import PUBLIC, ThinkingControl, thinking_control
from app.telemetry.log import Logger
from app.telemetry.metrics import PROBE, Metrics
from app.telemetry.reply_window import NO_FAULT
from app.upstream.client import Upstream
from deploy.core.errors import DeployError, EngineError
from deploy.core.tasks import spawn, supervise
from deploy.drivers.factory import make_engine
from deploy.engine.abilities import Abilities
from deploy.engine.dialects import DIALECTS
from deploy.engine.engine import EngineState, Phase
from deploy.engine.probe import ProbeOutcome, ProbeResult, probe, work_done
from deploy.engine.spec import EngineSpec, Kind
from deploy.engine.supervised import Engine
from gates.contracts.dialect import Dialect

QUIET_SECONDS = 10.0  # without a token for so long it is probed: twice before it stops counting as ready
PROBE_SECONDS = 8.0  # timeout of a probe of an engine that is not known to be slower
FIRST_TOKEN_SECONDS = 10.0  # for a first token where another engine could be asked
PATIENCE = 4.0  # an engine that is slower may take so many times its slowest first token of late
FORGETTING = 0.98  # the share of the slowest first token that counts after another one
LOOK_SECONDS = 0.25  # how often to check whether a probe is due
RETRY_SECONDS = 5.0  # the pause after a failed start; the driver then starts the engine again
SILENT_PROBES = 3  # failed probes in a row after which an engine of ours counts as wedged and is replaced
CROWDED_SECONDS = 2.0  # a token of a live reply so shortly before a failed probe shows that the engine works
FULL_SECONDS = 120.0  # a full context is not the engine's fault until it sent no token for so long
CLEAN_PROBES = 3  # behaviour probes in a row without a thought after which it counts as `verified`
RECHECK_SECONDS = 60.0  # between the behaviour probes of an engine that is not `verified`
DOUBT_SECONDS = 120.0  # how long one caller's replies ask for no second behaviour probe

# Verdicts that a healthy engine without a free slot gives, too.
CROWDED_OUT: Final = (ProbeOutcome.STALLED, ProbeOutcome.LOADING)
UNIDENTIFIED: Final = "not identified yet"

# Whether a failed request was the engine's fault; resolved within seconds.
FaultAttribution = asyncio.Future[bool]


class Stream(Protocol):
    """A reply that is being streamed."""

    progress: float  # time of its last token, in `time.perf_counter` seconds; 0 before the first


EngineFactory = Callable[[EngineSpec, Path, Callable[[EngineState], None]], Engine]


def driver(spec: EngineSpec, state_dir: Path, on_change: Callable[[EngineState], None]) -> Engine:
    """The engine of the spec's own driver, which starts it again after a failed start."""
    return make_engine(spec, state_dir=state_dir, on_change=on_change, retry_s=RETRY_SECONDS)


class Route(msgspec.Struct, frozen=True):
    """Where one request is sent."""

    engine: str
    dialect: Dialect
    kind: Kind
    abilities: Abilities
    url: str  # of the engine, without /v1
    served_name: str
    backend: "Backend"  # to be told what the request showed of the engine
    control: ThinkingControl
    patience: float  # for its first token, in seconds, where another engine could be asked


@dataclass(frozen=True, slots=True)
class PoolContext:
    """State that all backends of a pool share."""

    factory: EngineFactory
    state_dir: Path
    metrics: Metrics
    log: Logger
    changed: asyncio.Event  # set with every change of an engine's state
    gated: set[str] = field(default_factory=set)  # engines that a passing report put in service
    replicas: set[str] = field(default_factory=set)  # engines that need to be identified before they serve


class Backend:
    """One engine, its health and its breaker."""

    def __init__(
        self, spec: EngineSpec, connect_timeout: float, context: PoolContext, model: str = ""
    ) -> None:
        self.spec = spec
        self.model = model  # of the model that it is started for
        self.upstream = Upstream(connect_timeout, spec.access)
        self.engine: Engine | None = None
        self.seen = float("-inf")  # time of its last token, in monotonic seconds
        self.breaker = Breaker()
        self.silent_probes = 0  # in a row
        self._is_slow = False  # its last probe got no token in time
        self._slowest = 0.0  # first token of late, in seconds
        self.streams: set[Stream] = set()  # replies being streamed, whose tokens show that it works
        self._route: Route | None = None  # None after a change of what it is made of
        self._probe_wanted = asyncio.Event()
        self._undecided: list[FaultAttribution] = []
        self._thinks: bool | None = None  # whether behaviour probes saw it think although thinking was off
        self._clean_probes = 0  # in a row, of its behaviour
        self._behaviour_due = float("inf")  # when it is to be probed, in monotonic seconds
        self._behaviour: asyncio.Task[None] | None = None
        self._doubts: dict[str, float] = {}  # by caller: when its replies last asked for that
        self.outlier = OutlierDetector()
        self.stays_out: str | None = UNIDENTIFIED  # why a replica gets no requests; may quote the engine
        self.refusal = ""  # the same, without its words
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._failure: DeployError | None = None  # of its last start
        self._changed = asyncio.Event()  # set with every change of state

    # ------------------------------------------------------------------------------ up and down

    def make(self) -> Engine:
        """The engine, not started. Raises DeployError: its configuration cannot work."""
        if self.engine is None:
            self.engine = self._context.factory(self.spec, self._context.state_dir, self._on_change)
        return self.engine

    def want(self) -> None:
        """Start it and its health checks in the background; no effect if that was done."""
        if self._task is None or self._task.done():
            self._task = supervise(self._run, "engine_watch", self.spec.name)

    async def up(self) -> None:
        """Return once it streams. Raises DeployError when a start fails."""
        before = self._failure
        self.want()
        while not self.is_up:
            if self._failure is not None and self._failure is not before:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    async def down(self, *, leave: bool = False) -> None:
        """Return once it has ended; with `leave`, what can outlive this process is left running. Idempotent."""
        tasks = [task for task in (self._task, self._behaviour) if task is not None]
        self._task = self._behaviour = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._decide(at_fault=False)  # its replies end because we stop it
        if self.engine is not None:
            await (self.engine.leave() if leave else self.engine.stop())
        self.upstream.close()
        self._context.metrics.engine(self.spec.name, False, 0)

    async def _run(self) -> None:
        """Start it once, then health-check it. Restarts, also after a failed start, are the driver's."""
        try:
            await self.make().start()
        except EngineError:
            pass  # `_on_change` has reported it
        except DeployError as error:  # the configuration cannot work, and no retry would change that
            self._fail(error)
            return self._notify()
        await self._health_check()

    def _fail(self, error: DeployError) -> None:
        self._failure = error
        self._context.log.error("engine_down", engine=self.spec.name, error=loggable(error))

    async def _health_check(self) -> None:
        """Probe the engine when the breaker asks for it, and when no token was seen for a while."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._probe_wanted.wait()
            self._probe_wanted.clear()
            if self.engine is None or (url := self.engine.url) is None:
                continue
            busy = self._behaviour or (self.upstream.open and self.control == "unverified")
            if time.monotonic() >= self._behaviour_due and not busy:
                self._behaviour = spawn(self._probe_behaviour(url), "engine_watch", self.spec.name)
            is_quiet = self.breaker.state is BreakerState.CLOSED and self.age >= QUIET_SECONDS
            if is_quiet or self.breaker.may_probe(time.monotonic()):
                await self._probe(url)

    async def _probe(self, url: str) -> None:
        """Probe whether it streams; the only request that an open breaker lets through."""
        assert self.engine is not None
        self._step(BreakerEvent.PROBE)
        spec, began = self.spec, time.perf_counter()
        asking = probe(
            url,
            model=self.served_name,
            deadline_s=max(PROBE_SECONDS, PATIENCE * self._slowest),
            dialect=spec.dialect,
            kind=spec.kind,
            access=spec.access,
        )
        before, result = await asyncio.gather(work_done(url, spec.dialect, spec.access), asking)
        self._is_slow = result.verdict is ProbeOutcome.STALLED
        computes = self._is_slow and before is not None
        computes = computes and (await work_done(url, spec.dialect, spec.access) or 0) > (before or 0)
        if result.ok:
            self.seen = time.monotonic()
            event = BreakerEvent.PROBE_PASSED
        elif computes or self._is_crowded(result, began):
            event = BreakerEvent.PROBE_CROWDED_OUT
        else:
            event = BreakerEvent.PROBE_FAILED
        self._step(event)
        self.silent_probes = self.silent_probes + 1 if event is BreakerEvent.PROBE_FAILED else 0
        if self.silent_probes:
            self._context.log.warning("probe_failed", engine=spec.name, reason=str(result.verdict))
        if self.silent_probes >= SILENT_PROBES and spec.driver != "url":
            self.silent_probes = 0
            self.engine.restart_unhealthy(f"{SILENT_PROBES} probes in a row failed")

    def _is_crowded(self, result: ProbeResult, began: float) -> bool:
        """Whether a probe failed that began at `began` (`time.perf_counter`) for want of room, and not by the engine's fault."""
        if is_context_exceeded(result.said):
            # A probe is a few words: other requests fill the context that the slots share.
            return self.age < FULL_SECONDS
        if result.verdict in CROWDED_OUT:
            return any(stream.progress > began - CROWDED_SECONDS for stream in self.streams)
        return result.verdict is ProbeOutcome.HOST_EXHAUSTED

    def _on_change(self, state: EngineState) -> None:
        """Called by the driver with each new state."""
        ready = state.state is Phase.READY
        self._forget_evidence()  # each process starts with a clean record, but for what its start-up probe saw
        if ready:
            self.record_success()
        else:
            self._decide(at_fault=True)  # it ended during those requests
            self.identify(UNIDENTIFIED)
        if state.state is Phase.FAILED and self.engine is not None:
            self._fail(self.engine.failure())
        if ready and (misfit := state.abilities.misfit):
            self._context.log.warning("engine_format_misfit", engine=state.name, reason=misfit)
        self.show_control()
        self._context.metrics.engine(state.name, ready, state.restarts)
        # Without its last error, which may quote the engine's output. /admin/engines has it.
        self._context.log.info(
            "engine", engine=state.name, state=str(state.state), url=state.url, restarts=state.restarts
        )
        self._notify()

    def _notify(self) -> None:
        """Wake the waiters in `up` and the supervision of replicas."""
        self._context.changed.set()
        self._changed.set()

    # ---------------------------------------------------------------------------- health

    def record_success(self, seconds: float = 0.0) -> None:
        """A token was seen; the first of a reply came after so long."""
        self._slowest = max(seconds, FORGETTING * self._slowest)
        self.seen = time.monotonic()
        if self.breaker.state is not BreakerState.CLOSED and self._task is not None:
            self._step(BreakerEvent.SUCCESS)

    def record_failure(self, fault: UpstreamError) -> FaultAttribution | None:
        """Record a failed request. Returns None if the error does not count against the engine."""
        if fault.code in NO_FAULT or self._task is None:  # we stopped it, and its replies with it
            return None
        attribution: FaultAttribution = asyncio.get_running_loop().create_future()
        self._undecided.append(attribution)
        self._step(BreakerEvent.FAILURE)
        return attribution

    def _step(self, event: BreakerEvent) -> None:
        before = self.breaker
        self.breaker = step(before, event, time.monotonic())
        if self.breaker.state is BreakerState.SUSPECT:
            self._probe_wanted.set()
        else:
            self._decide(at_fault=not self.breaker.passes)
        if self.breaker.state is not before.state:
            restarts = self.engine.state.restarts if self.engine else 0
            self._context.metrics.engine(self.spec.name, self.is_up and self.breaker.passes, restarts)
        if self.breaker.passes != before.passes:
            state = str(self.breaker.state)
            self._context.log.warning("breaker", engine=self.spec.name, state=state, reason=str(event))

    def _decide(self, at_fault: bool) -> None:
        """Resolve the pending attributions."""
        undecided, self._undecided = self._undecided, []
        for attribution in undecided:
            cause = "engine" if at_fault else "request"
            self._context.metrics.count("manners_engine_faults_total", self.spec.name, cause)
            attribution.set_result(at_fault)

    @property
    def abilities(self) -> Abilities:
        """Its abilities, as tested at its start."""
        return self.engine.state.abilities if self.engine else Abilities()

    @property
    def control(self) -> ThinkingControl:
        """How far it is trusted to keep its reasoning out of the content."""
        is_shown = self._thinks is False or self.spec.name in self._context.gated
        return thinking_control(self.abilities, is_shown, bool(self._thinks))

    def _forget_evidence(self) -> None:
        self.outlier = OutlierDetector()
        self._doubts.clear()
        self._thinks, self._clean_probes = True if self.abilities.off_works is False else None, 0
        asks = self.spec.kind == "chat" and self.control != "verified"
        self._behaviour_due = time.monotonic() + RECHECK_SECONDS if asks else float("inf")

    def doubt(self, caller: str) -> None:
        """A reply to this caller broke a rule: ask the engine ourselves, unless this caller's replies did so lately."""
        now = time.monotonic()
        if now >= self._doubts.get(caller, float("-inf")) + DOUBT_SECONDS and self.spec.kind == "chat":
            self._doubts[caller] = self._behaviour_due = now

    async def _probe_behaviour(self, url: str) -> None:
        """Ask our own questions; what the replies hold decides whether it is `violated`."""
        self._behaviour_due = float("inf")
        asked = AskedEngine(self.spec.dialect, self.served_name, self.abilities)
        try:
            audits = await ask_questions(self.upstream, url, asked)
        finally:
            self._behaviour = None
        told = bool(DIALECTS[self.spec.dialect].thinking(0))
        record = self._context.metrics.record_violations
        for audit in audits:
            record(self.model, self.spec.name, PROBE, set(), audit.breaches(), [])
        kinds = [kind for audit in audits if (kind := unasked_thought(audit.stripped, told))]
        is_clean = len(audits) == len(QUESTIONS) and not any(audit.stripped for audit in audits)
        self._clean_probes = self._clean_probes + 1 if is_clean else 0
        if kinds and not self._thinks:
            self._thinks = True
            self._context.log.warning("engine_caught_thinking", engine=self.spec.name, reason=kinds[0])
        elif self.control != "verified" and self._clean_probes >= CLEAN_PROBES:
            self._thinks = False
            self._context.log.info("engine_cleared", engine=self.spec.name)
        if self.control != "verified":
            self._behaviour_due = min(self._behaviour_due, time.monotonic() + RECHECK_SECONDS)
        self.show_control()

    def ended(self, caller: str, whole: bool) -> None:
        """A caller got a whole reply, or the engine failed a request that it should have served."""
        now = time.monotonic()
        if self.outlier.ended(caller, whole, now):
            seconds = self.outlier.until - now
            self._context.log.warning("engine_ejected", engine=self.spec.name, seconds=seconds)

    def show_control(self) -> None:
        """Update the metric and the route, after a change of what `control` depends on."""
        self._route, control = None, self.control
        for state, name in PUBLIC.items():
            self._context.metrics.gauge("manners_engine_conduct", state == control, self.spec.name, name)

    def identify(self, stays_out: str | None = None, refusal: str = "") -> None:
        """Admit it among its replicas, or exclude it. See `stays_out`."""
        self.stays_out, self.refusal = stays_out, refusal
        self._context.metrics.gauge("manners_replica_refused", bool(refusal), self.spec.name)

    @property
    def is_up(self) -> bool:
        """Whether it is ready, by its driver's state."""
        return self.engine is not None and self.engine.state.state is Phase.READY

    @property
    def trouble(self) -> str | None:
        """Why it takes no requests; None: it is up, and its breaker lets them pass."""
        if self.engine is None:
            return "it does not run"
        if self.is_up:
            return None if self.breaker.passes else "it is up, and does not answer"
        state = self.engine.state
        return f"{state.state}: {state.last_error or 'no reason is known'}"

    def route(self, last_resort: bool = False) -> Route | None:
        """Where to send a request; None if it takes none now. `last_resort`: also if it only fails to answer probes in time."""
        url = self.engine.url if self.engine else None
        if url is None or not (self.breaker.passes or (last_resort and self._is_slow)):
            return None
        if self.stays_out is not None and self.spec.name in self._context.replicas:
            return None
        patience = max(FIRST_TOKEN_SECONDS, PATIENCE * self._slowest)
        if self._route is None or self._route.patience != patience:
            spec, abilities = self.spec, self.abilities
            name, control = self.served_name, self.control
            self._route = Route(
                spec.name, spec.dialect, spec.kind, abilities, url, name, self, control, patience
            )
        return self._route

    @property
    def served_name(self) -> str:
        """The model name to put into requests to it."""
        return (self.engine.state.model if self.engine else None) or self.spec.name

    @property
    def age(self) -> float:
        """Seconds since its last token, of a probe or of any reply that is being streamed."""
        token = max((stream.progress for stream in self.streams), default=0.0)
        quiet = time.monotonic() - self.seen
        return min(quiet, time.perf_counter() - token) if token else quiet


def loggable(error: DeployError) -> str:
    """An error's loggable part, because some errors quote the engine's output or log."""
    return type(error).__name__ if isinstance(error, EngineError) else str(error)
