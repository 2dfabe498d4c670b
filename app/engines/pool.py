"""The engine pool: the engines of this gateway, and the routing table from models to engines.

Engines are brought up, drained and taken down one by one (each is an `app.engines.backend.Backend`). The
engines of a model are one immutable value in the table, and `route` swaps it: a request gets its
`Route` once and keeps it, whatever changes meanwhile. An engine that no model names is started only
when it is asked for.
"""

import asyncio
from collections.abc import Container, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

from app.api.media import UNSUPPORTED, WORDS
from app.config.config import Config, ModelConfig
from app.engines.backend import Backend, EngineFactory, PoolContext, Route, driver
from app.errors.tree import BadField, EngineDown, NotForChat, UnknownModel
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from app.upstream.batching import IOBatch
from deploy.engine.engine import Engine, EngineState
from deploy.engine.spec import EngineSpec, Medium
from gates.artefact.artefact import folder_of, load
from gates.contracts.errors import ManifestError

FRESH_SECONDS = 30.0
"""How long after its last token an engine counts as ready."""
LOOK_SECONDS = 0.02
"""How often a drain checks whether requests are left."""


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Which engines serve a model: the live one, and the fallbacks for when it fails."""

    live: str
    fallbacks: tuple[str, ...] = ()

    @property
    def engines(self) -> tuple[str, ...]:
        """In the order in which they are tried."""
        return (self.live, *(name for name in self.fallbacks if name != self.live))


class EnginePool:
    """The engines that serve some model, and those that are about to."""

    def __init__(
        self, config: Config, metrics: Metrics, log: Logger, factory: EngineFactory = driver
    ) -> None:
        self._config = config
        self._metrics = metrics
        self.batch = IOBatch()
        self._context = PoolContext(factory, config.state_dir, metrics, log, self.batch)
        self._backends: dict[str, Backend] = {}
        self._gated: set[str] = set()  # engines that a passing report put in service
        self._table: Mapping[str, ModelRoute] = {
            name: ModelRoute(model.live, model.fallback) for name, model in config.models.items()
        }

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config

    def apply(self, config: Config) -> None:
        """Take a configuration with the same models and no engine less; for requests that come from now on."""
        self._config = config

    # ------------------------------------------------------------------------- engines, one by one

    async def start(self) -> None:
        """Begin to bring up every engine that a model is served by; returns at once."""
        for name, route in self._table.items():
            for engine in route.engines:
                self.want(self._config.engines[engine], name)
            self.route(name, route.live)

    def want(self, spec: EngineSpec, model: str) -> None:
        """Bring an engine up for a model, in the background; no effect if it runs."""
        self._backend(spec, model).want()

    async def bring_up(self, spec: EngineSpec, model: str) -> None:
        """Return once the engine streams; at once if it does already. Raises DeployError: its start failed."""
        await self._backend(spec, model).up()

    def engine(self, spec: EngineSpec, model: str) -> Engine:
        """The engine of a spec, started or not. Raises DeployError: its configuration cannot work."""
        return self._backend(spec, model).make()

    def _backend(self, spec: EngineSpec, model: str) -> Backend:
        backend = self._backends.get(spec.name)
        if backend is None:
            timeouts = self._config.models[model].timeouts
            backend = self._backends[spec.name] = Backend(spec, timeouts.connect, self._context)
            backend.gated = spec.name in self._gated
            self._describe(spec)
            self._metrics.conduct(spec.name, backend.conduct)
        return backend

    async def take_down(self, name: str) -> None:
        """Return once the engine has ended; replies that it still streams are cut off."""
        backend = self._backends.get(name)
        if backend is not None:
            await backend.down()
            self._backends.pop(name, None)
            self._metrics.put_down(name)

    async def drain(self, name: str, seconds: float) -> int:
        """Wait until the engine has no open request, at most `seconds`; the number that is left."""
        end = asyncio.get_running_loop().time() + seconds
        while (left := self.open(name)) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(LOOK_SECONDS)
        return left

    def open(self, name: str) -> int:
        """The number of requests that are open at the engine."""
        backend = self._backends.get(name)
        return backend.upstream.open if backend else 0

    def is_up(self, name: str) -> bool:
        """Whether the engine is ready, by its driver's state."""
        backend = self._backends.get(name)
        return backend is not None and backend.is_up

    def trouble(self, name: str) -> str:
        """Why the engine is not up, by its driver's state."""
        backend = self._backends.get(name)
        if backend is None or backend.engine is None:
            return "it does not run"
        state = backend.engine.state
        return f"{state.state}: {state.last_error or 'no reason is known'}"

    def running(self) -> frozenset[str]:
        """Engines that are up, coming up, or being kept up."""
        return frozenset(self._backends)

    def _describe(self, spec: EngineSpec) -> None:
        self._metrics.engine(spec.name, False, 0)
        image = (spec.image or "").partition("@")[2]
        artefact = artefact_digest(spec.artefact)
        self._metrics.describe_engine(spec.name, spec.dialect, spec.driver, artefact, image)

    # ------------------------------------------------------------------------------------- routes

    def route(self, model: str, engine: str) -> None:
        """Send new requests of the model to this engine; those that have a route keep it."""
        self._table = {**self._table, model: replace(self._table[model], live=engine)}
        self._metrics.route(model, engine)
        self._metrics.live_gated(model, engine, engine in self._gated)

    def is_gated(self, engine: str) -> bool:
        """Whether a promotion on a passing report has put this engine in service."""
        return engine in self._gated

    @property
    def ungated(self) -> list[str]:
        """The models whose live engine was not promoted on a passing report."""
        return sorted(name for name, route in self._table.items() if route.live not in self._gated)

    def trust(self, engine: str) -> None:
        """Mark the engine as promoted on a passing report: its replies need not be held back."""
        self._gated.add(engine)
        if engine in self._backends:
            self._backends[engine].trust()

    def distrust(self, engine: str) -> None:
        """The engine is not what its report was about: its replies are held back, and it counts as ungated."""
        self._gated.discard(engine)
        if engine in self._backends:
            self._backends[engine].distrust()
        for model, route in self._table.items():
            if route.live == engine:
                self._metrics.live_gated(model, engine, False)

    def model_route(self, model: str) -> ModelRoute:
        """The engines that serve the model now."""
        return self._table[model]

    def serves(self, engine: str) -> bool:
        """Whether some model's requests may go to this engine."""
        return any(engine in route.engines for route in self._table.values())

    def model(self, name: str, chats: bool) -> ModelConfig:
        """The configuration of a public model. Raises UnknownModel; NotForChat if `chats` and it is for embeddings."""
        try:
            model = self._config.models[name]
        except KeyError:
            known = ", ".join(sorted(self._config.models))
            raise UnknownModel(f"there is no model {name[:64]!r} here; there is: {known}") from None
        if chats and model.kind == "embeddings":
            raise NotForChat(f"{name} gives embeddings and nothing else: POST /v1/embeddings")
        return model

    def first(self, model: str, media: Set[Medium] = frozenset()) -> Route:
        """The route of a new request: the live engine, or the first fallback that takes requests and what it holds.

        Raises:
            EngineDown: there is none. BadField: there are some, and none takes these `media`.
        """
        route = self.next(model, (), media)
        if route is not None:
            return route
        if media and (able := self.next(model, ())) is not None:
            lacking = " and ".join(
                WORDS[one] for one in sorted(media - set(able.abilities.media), reverse=True)
            )
            raise BadField(f"no engine of this model that is up takes {lacking}: send text", UNSUPPORTED)
        engines = ", ".join(self._table[model].engines)
        raise EngineDown(f"no engine of this model is up: {engines}; try again soon")

    def next(self, model: str, asked: Container[str], media: Set[Medium] = frozenset()) -> Route | None:
        """The route to retry on after the engines `asked` have failed, by the table as it is now."""
        for backend in self._of(self._table[model]):
            route = None if backend.spec.name in asked else backend.route()
            if route is not None and (not media or media <= set(route.abilities.media)):
                return route
        return None

    def _of(self, route: ModelRoute) -> list[Backend]:
        return [self._backends[name] for name in route.engines if name in self._backends]

    # ---------------------------------------------------------------------------------- as a whole

    @property
    def outstanding(self) -> int:
        """The number of requests that are open at engines."""
        return sum(backend.upstream.open for backend in self._backends.values())

    @property
    def is_ready(self) -> bool:
        """Whether some model has an engine that lately streamed a real completion (or embedded a text)."""
        return any(
            backend.route() is not None and backend.age < FRESH_SECONDS
            for route in self._table.values()
            for backend in self._of(route)
        )

    def reset(self) -> None:
        """Close every breaker and forget past failures."""
        for backend in self._backends.values():
            backend.reset()

    def states(self) -> Mapping[str, EngineState]:
        """The state of every engine of the pool."""
        return {name: backend.engine.state for name, backend in self._backends.items() if backend.engine}

    async def wait_ready(self) -> None:
        """Return when `is_ready`."""
        while not self.is_ready:
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Release every engine: child processes end with us, containers run on and are adopted at the next start."""
        await asyncio.gather(*(backend.down(leave=True) for backend in self._backends.values()))


def artefact_digest(artefact: Path | None) -> str:
    """The root digest that the artefact's own manifest states, or "" without a sound one."""
    if artefact is None:
        return ""
    try:
        return load(folder_of(artefact)).root
    except (ManifestError, OSError):
        return ""
