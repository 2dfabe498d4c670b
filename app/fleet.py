"""The engines of this gateway: brought up in the background, watched, and picked for a request.

A request is given a `Route`, an immutable value: it keeps the engine it was given, whatever
changes meanwhile. An engine is ready when it streams, and stays ready while somebody sees it
stream: live requests vouch for it, and when it is idle a probe does. An engine that fails request
after request is left alone by its breaker until a probe sees it stream; one of ours that answers
no probe any more, though its process lives, is put down and replaced.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.breaker import Breaker, Event, State, step
from app.config import Config, Model
from app.errors import EngineDown, NotForChat, UnknownModel
from app.log import Logger
from app.metrics import Metrics
from app.rounds import Round
from app.upstream import Upstream
from deploy.abilities import Abilities
from deploy.drivers import make_engine
from deploy.embedded import EmbeddedEngine
from deploy.engine import Engine, EngineState, Phase
from deploy.errors import DeployError, EngineError
from deploy.probe import probe
from deploy.spec import Dialect, EngineSpec, Kind
from gates.artefact import ArtefactError, folder_of, load

FRESH_SECONDS = 30.0
"""How long a seen token vouches for an engine."""
QUIET_SECONDS = 10.0
"""An engine that gave no token for so long is probed: twice before it stops counting as ready."""
PROBE_SECONDS = 8.0
"""How long a probe may take."""
LOOK_SECONDS = 1.0
RETRY_SECONDS = 5.0

SILENT_PROBES = 3
"""Probes without a token, in a row, after which an engine of ours is taken for wedged."""

_WELL = Breaker()

EngineFactory = Callable[[EngineSpec, Path, Callable[[EngineState], None]], Engine]


def _driver(spec: EngineSpec, state_dir: Path, on_change: Callable[[EngineState], None]) -> Engine:
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


class _Member:
    """One engine and what is known of it."""

    def __init__(self, spec: EngineSpec, connect_timeout: float, round_: Round) -> None:
        self.spec = spec
        self.upstream = Upstream(connect_timeout, round_)
        self.engine: Engine | None = None
        self.seen = float("-inf")  # when it last gave a token; monotonic seconds
        self.breaker = _WELL
        self.silent_probes = 0  # in a row
        self.task: asyncio.Task[None] | None = None

    def vouch(self) -> None:
        """It gave a token."""
        self.seen = time.monotonic()
        if self.breaker is not _WELL:
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
        return self.engine.url if self.engine else None


class Fleet:
    """All engines that some model names. `start` returns at once; `stop` when nothing is left."""

    def __init__(
        self, config: Config, metrics: Metrics, log: Logger, factory: EngineFactory = _driver
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._log = log
        self._factory = factory
        self._members: dict[str, _Member] = {}
        self.round = Round()

    async def start(self) -> None:
        """Begin to bring up every engine that a model needs."""
        for model in self._config.models.values():
            for name in model.engines:
                if name not in self._members:
                    self._members[name] = self._add(name, model)
        for name, model in self._config.models.items():
            self._metrics.route(name, model.live)

    def _add(self, name: str, model: Model) -> _Member:
        spec = self._config.engines[name]
        member = _Member(spec, model.timeouts.connect, self.round)
        self._metrics.engine(name, False, 0)
        image = (spec.image or "").partition("@")[2]
        self._metrics.describe_engine(name, spec.dialect, spec.driver, artefact_digest(spec.artefact), image)
        member.task = asyncio.create_task(self._run(member), name=f"engine {name}")
        return member

    async def _run(self, member: _Member) -> None:
        """Bring one engine up, then keep looking at it. A driver's own restarts need no help."""
        while True:
            try:
                if member.engine is None:
                    member.engine = self._factory(member.spec, self._config.state_dir, self._changed)
                await member.engine.start()
            except DeployError as error:
                self._log.error("engine_down", engine=member.spec.name, error=str(error))
                if not isinstance(error, EngineError):
                    return  # the configuration cannot work; trying again would not change it
                await asyncio.sleep(RETRY_SECONDS)
                continue
            member.vouch()
            await self._watch(member)

    async def _watch(self, member: _Member) -> None:
        """Probe the engine whenever no request has vouched for it lately."""
        assert member.engine is not None
        while member.engine.state.state not in (Phase.FAILED, Phase.STOPPED):
            await asyncio.sleep(LOOK_SECONDS)
            if member.url is not None and member.is_due:
                await self._probe(member, member.url)

    async def _probe(self, member: _Member, url: str) -> None:
        """See whether it streams; the only thing that an open breaker lets through."""
        assert member.engine is not None
        if member.breaker.state is State.OPEN:
            member.breaker = step(member.breaker, Event.PROBE, time.monotonic())
        spec = member.spec
        result = await probe(
            url,
            model=member.served_name,
            deadline_s=PROBE_SECONDS,
            dialect=spec.dialect,
            kind=spec.kind,
        )
        self._metrics.engine(spec.name, result.ok, member.engine.state.restarts)
        if result.ok:
            member.silent_probes = 0
            member.vouch()
            return
        member.blame()
        member.silent_probes += 1
        self._log.warning("probe_failed", engine=spec.name, reason=str(result.verdict))
        if member.silent_probes >= SILENT_PROBES and isinstance(member.engine, EmbeddedEngine):
            member.silent_probes = 0
            member.engine.condemn(f"{SILENT_PROBES} probes in a row failed")

    def _changed(self, state: EngineState) -> None:
        """A driver's news."""
        ready = state.state is Phase.READY
        if ready and state.name in self._members:
            self._members[state.name].vouch()
        self._metrics.engine(state.name, ready, state.restarts)
        self._log.info(
            "engine", engine=state.name, state=str(state.state), url=state.url, restarts=state.restarts,
            last_error=state.last_error,
        )  # fmt: skip

    def model(self, name: str, chats: bool) -> Model:
        """The configuration of a public model. Raises UnknownModel, or NotForChat if it `chats` not."""
        try:
            model = self._config.models[name]
        except KeyError:
            known = ", ".join(sorted(self._config.models))
            raise UnknownModel(f"there is no model {name[:64]!r} here; there is: {known}") from None
        if chats and model.kind == "embeddings":
            raise NotForChat(f"{name} gives embeddings and nothing else: POST /v1/embeddings")
        return model

    def routes(self, model: Model) -> list[Route]:
        """The engines to ask, in order: the live one and then its fallbacks. Raises EngineDown."""
        members = [self._members[name] for name in model.engines if name in self._members]
        routes = [route for route in (member.route() for member in members) if route is not None]
        if not routes:
            raise EngineDown(f"no engine of this model is up: {', '.join(model.engines)}; try again soon")
        return routes

    @property
    def outstanding(self) -> int:
        """Requests that engines have not answered to the end."""
        return sum(member.upstream.open for member in self._members.values())

    @property
    def is_ready(self) -> bool:
        """Whether some model has an engine that lately streamed a real completion (or embedded a text)."""
        return any(
            member.route() is not None and member.age < FRESH_SECONDS
            for model in self._config.models.values()
            for member in [self._members.get(name) for name in model.engines]
            if member is not None
        )

    def pardon(self) -> None:
        """Close every breaker: whatever engines did is forgotten."""
        for member in self._members.values():
            member.breaker = _WELL

    def states(self) -> Mapping[str, EngineState]:
        """What is known of every engine that runs here."""
        return {name: m.engine.state for name, m in self._members.items() if m.engine}

    async def wait_ready(self) -> None:
        """Return when `is_ready`."""
        while not self.is_ready:
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Bring every engine down."""
        members = list(self._members.values())
        for member in members:
            if member.task:
                member.task.cancel()
        for member in members:
            with contextlib.suppress(asyncio.CancelledError):
                if member.task:
                    await member.task
        engines = [m.engine.stop() for m in members if m.engine]
        await asyncio.gather(*engines)
        for member in members:
            member.upstream.close()


def artefact_digest(artefact: Path | None) -> str:
    """The root digest that the artefact's own manifest states, or "" without a sound one."""
    if artefact is None:
        return ""
    try:
        return load(folder_of(artefact)).root
    except (ArtefactError, OSError):
        return ""
