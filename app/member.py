"""One engine of the fleet: brought up in the background, watched, and asked by way of its routes.

An engine is ready when it streams, and stays ready while somebody sees it stream: live requests
vouch for it, and when it is idle a probe does. An engine that fails request after request is left
alone by its breaker until a probe sees it stream; one of ours that answers no probe any more,
though its process lives, is put down and replaced.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.breaker import Breaker, Event, State, step
from app.log import Logger
from app.metrics import Metrics
from app.rounds import Round
from app.upstream import Upstream
from deploy.abilities import Abilities
from deploy.drivers import make_engine
from deploy.engine import Engine, EngineState, Phase
from deploy.errors import DeployError, EngineError
from deploy.probe import probe
from deploy.spec import Dialect, EngineSpec, Kind
from deploy.supervised import Supervised

QUIET_SECONDS = 10.0
"""An engine that gave no token for so long is probed: twice before it stops counting as ready."""
PROBE_SECONDS = 8.0
"""How long a probe may take."""
LOOK_SECONDS = 1.0
RETRY_SECONDS = 5.0

SILENT_PROBES = 3
"""Probes without a token, in a row, after which an engine of ours is taken for wedged."""

WELL = Breaker()

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
    blame: Callable[[], None]  # to be called when it failed a request


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every member of one fleet shares."""

    factory: EngineFactory
    state_dir: Path
    metrics: Metrics
    log: Logger
    round: Round


class Member:
    """One engine and what is known of it."""

    def __init__(self, spec: EngineSpec, connect_timeout: float, around: Surroundings) -> None:
        self.spec = spec
        self.upstream = Upstream(connect_timeout, around.round)
        self.engine: Engine | None = None
        self.seen = float("-inf")  # when it last gave a token; monotonic seconds
        self.breaker = WELL
        self.silent_probes = 0  # in a row
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
            self._task = asyncio.create_task(self._run(), name=f"engine {self.spec.name}")

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
                self._around.log.error("engine_down", engine=self.spec.name, error=str(error))
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
        """Probe the engine whenever no request has vouched for it lately."""
        assert self.engine is not None
        while self.engine.state.state not in (Phase.FAILED, Phase.STOPPED):
            await asyncio.sleep(LOOK_SECONDS)
            if self.url is not None and self.is_due:
                await self._probe(self.url)

    async def _probe(self, url: str) -> None:
        """See whether it streams; the only thing that an open breaker lets through."""
        assert self.engine is not None
        if self.breaker.state is State.OPEN:
            self.breaker = step(self.breaker, Event.PROBE, time.monotonic())
        spec = self.spec
        result = await probe(
            url,
            model=self.served_name,
            deadline_s=PROBE_SECONDS,
            dialect=spec.dialect,
            kind=spec.kind,
        )
        self._around.metrics.engine(spec.name, result.ok, self.engine.state.restarts)
        if result.ok:
            self.silent_probes = 0
            self.vouch()
            return
        self.blame()
        self.silent_probes += 1
        self._around.log.warning("probe_failed", engine=spec.name, reason=str(result.verdict))
        if self.silent_probes >= SILENT_PROBES and isinstance(self.engine, Supervised):
            self.silent_probes = 0
            self.engine.condemn(f"{SILENT_PROBES} probes in a row failed")

    def _changed(self, state: EngineState) -> None:
        """The driver's news."""
        ready = state.state is Phase.READY
        if ready:
            self.vouch()
        self._around.metrics.engine(state.name, ready, state.restarts)
        self._around.log.info(
            "engine", engine=state.name, state=str(state.state), url=state.url, restarts=state.restarts,
            last_error=state.last_error,
        )  # fmt: skip
        self._tell()

    def _tell(self) -> None:
        """Wake who waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    # ---------------------------------------------------------------------------- what is known

    def vouch(self) -> None:
        """It gave a token."""
        self.seen = time.monotonic()
        if self.breaker is not WELL:
            self.breaker = step(self.breaker, Event.SUCCESS, self.seen)

    def blame(self) -> None:
        """It failed."""
        self.breaker = step(self.breaker, Event.FAILURE, time.monotonic())

    @property
    def is_due(self) -> bool:
        """Whether it is time for a probe."""
        now = time.monotonic()
        if self.breaker.state is State.CLOSED:
            return now - self.seen >= QUIET_SECONDS
        return self.breaker.may_probe(now)

    @property
    def is_up(self) -> bool:
        """Whether its driver says that it streams."""
        return self.engine is not None and self.engine.state.state is Phase.READY

    def route(self) -> Route | None:
        """Where to send a request, if it takes any."""
        if self.url is None or self.breaker.state is not State.CLOSED:
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
        )

    @property
    def served_name(self) -> str:
        """What to put in `model` when asking it."""
        return (self.engine.state.model if self.engine else None) or self.spec.name

    @property
    def age(self) -> float:
        """Seconds since a token was seen."""
        return time.monotonic() - self.seen

    @property
    def url(self) -> str | None:
        """Its address, while it is ready."""
        return self.engine.url if self.engine else None
