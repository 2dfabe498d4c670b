"""One engine of the fleet: brought up in the background, watched, and asked by way of its routes.

An engine is ready when it streams, and stays ready while somebody sees it stream: live requests
vouch for it, and when it is idle a probe does. When a request fails, a probe tells whether the engine
is to blame (`app.engines.breaker`); if so, it gets no requests until a probe sees it stream. One of ours that
answers no probe any more, though its process lives, is put down and replaced.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from app.engines.breaker import Breaker, Event, State, step
from app.errors.tree import EngineDown, UpstreamError
from app.stream.conduct import Conduct, conduct
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from app.upstream.batching import Round
from app.upstream.client import Upstream
from deploy.core.errors import DeployError, EngineError
from deploy.core.tasks import supervise
from deploy.drivers.factory import make_engine
from deploy.engine.abilities import Abilities
from deploy.engine.engine import Engine, EngineState, Phase
from deploy.engine.probe import ProbeOutcome, ProbeResult, probe
from deploy.engine.spec import Dialect, EngineSpec, Kind
from deploy.engine.supervised import Supervised

QUIET_SECONDS = 10.0
"""An engine that gave no token for so long is probed: twice before it stops counting as ready."""
PROBE_SECONDS = 8.0
"""How long a probe may take."""
LOOK_SECONDS = 1.0
RETRY_SECONDS = 5.0

SILENT_PROBES = 3
"""Probes without a token, in a row, after which an engine of ours is taken for wedged."""

CROWDED_SECONDS = 2.0
"""A running reply that got a token so shortly before a probe failed shows that the engine lives."""

CROWDED_OUT: Final = frozenset({ProbeOutcome.STALLED, ProbeOutcome.LOADING})
"""Verdicts that an engine without a free place gives, too."""

UNREACHABLE: Final = frozenset({"connect_failed", "connect_timeout"})
"""Codes of faults that no request can cause."""

NO_FAULT: Final = frozenset({"engine_busy", "reply_fully_filtered"})
"""Codes of an engine that works: it has no room, or a caller got it to say only what is not spoken."""

WELL = Breaker()

Judgement = asyncio.Future[bool]
"""Whether the engine was to blame for a failed request. Done once it is known, within seconds."""


class Stream(Protocol):
    """A reply that an engine is giving."""

    progress: float  # when it last got a token; `time.perf_counter` seconds, 0: not yet


EngineFactory = Callable[[EngineSpec, Path, Callable[[EngineState], None]], Engine]


def driver(spec: EngineSpec, state_dir: Path, on_change: Callable[[EngineState], None]) -> Engine:
    """The engine that the spec's own driver runs."""
    return make_engine(spec, state_dir=state_dir, on_change=on_change)


@dataclass(frozen=True, slots=True)
class Route:
    """Where one request goes."""

    engine: str
    dialect: Dialect
    kind: Kind
    abilities: Abilities
    url: str  # of the engine, without /v1
    served_name: str
    upstream: Upstream
    vouch: Callable[[], None]  # to be called when the engine gave a token; or a vector, if that is its kind
    blame: Callable[[UpstreamError], Judgement | None]  # to be called when it failed a request
    _streams: set[Stream]
    conduct: Conduct = "unknown"
    catch: Callable[[str], None] = lambda kind: None  # to be called when it thought though told not to

    @contextmanager
    def serving(self, stream: Stream) -> Iterator[None]:
        """Within this the engine gives a reply: tokens of it show that the engine lives."""
        self._streams.add(stream)
        try:
            yield
        finally:
            self._streams.discard(stream)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every backend of one fleet shares."""

    factory: EngineFactory
    state_dir: Path
    metrics: Metrics
    log: Logger
    round: Round


class Backend:
    """One engine and what is known of it."""

    def __init__(self, spec: EngineSpec, connect_timeout: float, around: Surroundings) -> None:
        self.spec = spec
        self.upstream = Upstream(connect_timeout, around.round)
        self.engine: Engine | None = None
        self.seen = float("-inf")  # when it last gave a token; monotonic seconds
        self.breaker = WELL
        self.silent_probes = 0  # in a row
        self._streams: set[Stream] = set()
        self._suspected = asyncio.Event()  # a probe is wanted now
        self._undecided: list[Judgement] = []
        self.gated = False  # a passing report put it in service
        self.caught = False  # a live reply held a thought that nobody had asked for
        self._around = around
        self._task: asyncio.Task[None] | None = None
        self._failures: list[DeployError] = []  # of its starts
        self._news = asyncio.Event()

    # ------------------------------------------------------------------------------ up and down

    def make(self) -> Engine:
        """The engine, stopped if nobody has started it. Raises DeployError: its configuration cannot work."""
        if self.engine is None:
            self.engine = self._around.factory(self.spec, self._around.state_dir, self._changed)
        return self.engine

    def want(self) -> None:
        """Bring it up in the background and keep it up; left alone if that is under way."""
        if self._task is None or self._task.done():
            self._task = supervise(self._run, "engine_watch", self.spec.name)

    async def up(self) -> None:
        """Return once it streams. Raises DeployError when a start fails."""
        failed = len(self._failures)
        self.want()
        while not self.is_up:
            if len(self._failures) > failed:
                raise self._failures[-1]
            await self._news.wait()

    async def down(self, *, leave: bool = False) -> None:
        """Return once nothing of it is left; `leave`: but for what can live on without us. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._decide(at_fault=False)  # it is we who end its replies
        if self.engine is not None:
            await (self.engine.leave() if leave else self.engine.stop())
        self.upstream.close()
        self._around.metrics.engine(self.spec.name, False, 0)

    async def _run(self) -> None:
        """Bring it up, then keep looking at it. A driver's own restarts need no help."""
        while True:
            try:
                await self.make().start()
            except DeployError as error:
                self._around.log.error("engine_down", engine=self.spec.name, error=loggable(error))
                self._failures.append(error)
                self._tell()
                if not isinstance(error, EngineError):
                    return  # the configuration cannot work; trying again would not change it
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.vouch()
            self._tell()
            await self._watch()

    async def _watch(self) -> None:
        """Probe the engine when it is suspected, and whenever no request has vouched for it lately."""
        assert self.engine is not None
        while self.engine.state.state not in (Phase.FAILED, Phase.STOPPED):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_look()):
                    await self._suspected.wait()
            self._suspected.clear()
            if self.url is not None and self.is_due:
                await self._probe(self.url)

    def _until_look(self) -> float:
        if self.breaker.state is State.CLOSED or self.url is None:
            return LOOK_SECONDS
        return min(LOOK_SECONDS, max(self.breaker.until - time.monotonic(), 0.001))

    async def _probe(self, url: str) -> None:
        """See whether it streams; the only thing that an open breaker lets through."""
        assert self.engine is not None
        if self.breaker.state is not State.CLOSED:
            self._step(Event.PROBE)
        spec, began = self.spec, time.perf_counter()
        try:
            result = await probe(
                url,
                model=self.served_name,
                deadline_s=PROBE_SECONDS,
                dialect=spec.dialect,
                kind=spec.kind,
            )
        except BaseException:
            if self.breaker.state is State.HALF_OPEN:  # or no probe would ever begin again
                self._step(Event.PROBE_FAILED)
            raise
        event = self._meaning(result, began)
        if event is not Event.PROBE_FAILED:
            self.silent_probes = 0
            self.seen = time.monotonic() if event is Event.PROBE_PASSED else self.seen
            return self._step(event)
        self._step(event)
        self.silent_probes += 1
        self._around.log.warning("probe_failed", engine=spec.name, reason=str(result.verdict))
        if self.silent_probes >= SILENT_PROBES and isinstance(self.engine, Supervised):
            self.silent_probes = 0
            self.engine.condemn(f"{SILENT_PROBES} probes in a row failed")

    def _meaning(self, result: ProbeResult, began: float) -> Event:
        """What a probe that began then says of the engine."""
        if result.ok:
            return Event.PROBE_PASSED
        lately = began - CROWDED_SECONDS
        if result.verdict in CROWDED_OUT and any(stream.progress > lately for stream in self._streams):
            return Event.PROBE_CROWDED_OUT
        return Event.PROBE_FAILED

    def _changed(self, state: EngineState) -> None:
        """The driver's news."""
        ready = state.state is Phase.READY
        if ready:
            self.vouch()
        else:
            self._decide(at_fault=True)  # it ended under them
            self.caught = False  # whatever comes up next is another process
        self._show_conduct()
        self._around.metrics.engine(state.name, ready, state.restarts)
        # Not its last error: that may be in the engine's own words. /admin/engines has it.
        self._around.log.info(
            "engine", engine=state.name, state=str(state.state), url=state.url, restarts=state.restarts
        )
        self._tell()

    def _tell(self) -> None:
        """Wake who waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    # ---------------------------------------------------------------------------- what is known

    def vouch(self) -> None:
        """It gave a token."""
        self.seen = time.monotonic()
        if self.breaker.state is not State.CLOSED and self._task is not None:
            self._step(Event.SUCCESS)

    def blame(self, fault: UpstreamError) -> Judgement | None:
        """It failed a request. None: that is no fault."""
        if fault.code in NO_FAULT or self._task is None:  # it was taken down, and its replies with it
            return None
        judgement: Judgement = asyncio.get_running_loop().create_future()
        self._undecided.append(judgement)
        # By its type, too: an error in a stream may bear any code.
        unreachable = isinstance(fault, EngineDown) and fault.code in UNREACHABLE
        self._step(Event.UNREACHABLE if unreachable else Event.FAILURE)
        return judgement

    def pardon(self) -> None:
        """Forget what it did."""
        self.breaker = WELL
        self._decide(at_fault=False)

    def _step(self, event: Event) -> None:
        before = self.breaker
        self.breaker = step(before, event, time.monotonic())
        if self.breaker.state is State.SUSPECT:
            self._suspected.set()
        else:
            self._decide(at_fault=not self.breaker.passes)
        if self.breaker.state is not before.state:
            restarts = self.engine.state.restarts if self.engine else 0
            self._around.metrics.engine(self.spec.name, self.is_up and self.breaker.passes, restarts)
        if self.breaker.passes != before.passes:
            self._around.log.warning(
                "breaker", engine=self.spec.name, state=str(self.breaker.state), reason=str(event)
            )

    def _decide(self, at_fault: bool) -> None:
        """Whoever or whatever was undecided, now it is known."""
        undecided, self._undecided = self._undecided, []
        for judgement in undecided:
            self._around.metrics.engine_fault(self.spec.name, "engine" if at_fault else "request")
            judgement.set_result(at_fault)

    @property
    def conduct(self) -> Conduct:
        """How far it is trusted to keep its thoughts apart."""
        abilities = self.engine.state.abilities if self.engine else Abilities()
        return conduct(abilities, self.gated, self.caught)

    def trust(self) -> None:
        """A passing report put it in service."""
        self.gated = True
        self._show_conduct()

    def catch(self, kind: str) -> None:
        """It thought though told not to; `kind` as in `Thought`."""
        if not self.caught:
            self.caught = True
            self._around.log.warning("engine_caught_thinking", engine=self.spec.name, reason=kind)
            self._show_conduct()

    def _show_conduct(self) -> None:
        self._around.metrics.conduct(self.spec.name, self.conduct)

    @property
    def is_due(self) -> bool:
        """Whether it is time for a probe."""
        if self.breaker.state is State.CLOSED:
            return self.age >= QUIET_SECONDS
        return self.breaker.may_probe(time.monotonic())

    @property
    def is_up(self) -> bool:
        """Whether its driver says that it streams."""
        return self.engine is not None and self.engine.state.state is Phase.READY

    def route(self) -> Route | None:
        """Where to send a request, if it takes any."""
        if self.url is None or not self.breaker.passes:
            return None
        return Route(
            self.spec.name,
            self.spec.dialect,
            self.spec.kind,
            self.engine.state.abilities if self.engine else Abilities(),
            self.url,
            self.served_name,
            self.upstream,
            self.vouch,
            self.blame,
            self._streams,
            self.conduct,
            self.catch,
        )

    @property
    def served_name(self) -> str:
        """What to put in `model` when asking it."""
        return (self.engine.state.model if self.engine else None) or self.spec.name

    @property
    def age(self) -> float:
        """Seconds since a token was seen, of a probe or of any reply that it is giving."""
        token = max((stream.progress for stream in self._streams), default=0.0)
        quiet = time.monotonic() - self.seen
        return min(quiet, time.perf_counter() - token) if token else quiet

    @property
    def url(self) -> str | None:
        """Its address, while it is ready."""
        return self.engine.url if self.engine else None


def loggable(error: DeployError) -> str:
    """What may be logged of an error: an engine's own words, or its log's last lines, are in some."""
    return type(error).__name__ if isinstance(error, EngineError) else str(error)
