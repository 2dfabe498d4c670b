"""The engines of this gateway, and which of them a model is served by.

Engines are brought up, drained and brought down one by one (`app.engines.backend` looks after each). Which
ones serve a model is one immutable value in a table, and `route` swaps it: a request is given its
`Route` once and keeps it, whatever changes meanwhile. Engines that no model names are not started
until somebody asks for them.
"""

import asyncio
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from app.config.config import Config, ModelConfig
from app.engines.backend import Backend, EngineFactory, Surroundings, driver
from app.engines.backend import Route as Route
from app.errors.tree import EngineDown, NotForChat, UnknownModel
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from app.upstream.batching import Round
from deploy.engine.engine import Engine, EngineState
from deploy.engine.spec import EngineSpec
from gates.artefact.artefact import ArtefactError, folder_of, load

FRESH_SECONDS = 30.0
"""How long a seen token vouches for an engine."""
LOOK_SECONDS = 0.02
"""How often a drain looks whether a request is left."""


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Which engines serve a model: the live one, and whom to ask when it fails."""

    live: str
    fallbacks: tuple[str, ...] = ()

    @property
    def engines(self) -> tuple[str, ...]:
        """In the order in which they are asked."""
        return (self.live, *(name for name in self.fallbacks if name != self.live))


class EnginePool:
    """All engines that some model is served by, and those that are about to serve one."""

    def __init__(
        self, config: Config, metrics: Metrics, log: Logger, factory: EngineFactory = driver
    ) -> None:
        self._config = config
        self._metrics = metrics
        self.round = Round()
        self._around = Surroundings(factory, config.state_dir, metrics, log, self.round)
        self._backends: dict[str, Backend] = {}
        self._gated: set[str] = set()  # engines that a passing report put in service
        self._table: Mapping[str, ModelRoute] = {
            name: ModelRoute(model.live, model.fallback) for name, model in config.models.items()
        }

    # ------------------------------------------------------------------------- engines, one by one

    async def start(self) -> None:
        """Begin to bring up every engine that a model is served by; returns at once."""
        for name, way in self._table.items():
            for engine in way.engines:
                self.want(self._config.engines[engine], name)
            self._metrics.route(name, way.live)

    def want(self, spec: EngineSpec, model: str) -> None:
        """Bring an engine up for a model, in the background; left alone if it runs."""
        self._backend(spec, model).want()

    async def bring_up(self, spec: EngineSpec, model: str) -> None:
        """Return once the engine streams; left alone if it does. Raises DeployError."""
        await self._backend(spec, model).up()

    def engine(self, spec: EngineSpec, model: str) -> Engine:
        """The engine itself, started or not. Raises DeployError: its configuration cannot work."""
        return self._backend(spec, model).make()

    def _backend(self, spec: EngineSpec, model: str) -> Backend:
        backend = self._backends.get(spec.name)
        if backend is None:
            timeouts = self._config.models[model].timeouts
            backend = self._backends[spec.name] = Backend(spec, timeouts.connect, self._around)
            backend.gated = spec.name in self._gated
            self._describe(spec)
            self._metrics.conduct(spec.name, backend.conduct)
        return backend

    async def take_down(self, name: str) -> None:
        """Return once nothing of the engine is left; streams that it still serves are cut off."""
        backend = self._backends.get(name)
        if backend is not None:
            await backend.down()
            self._backends.pop(name, None)
            self._metrics.put_down(name)

    async def drain(self, name: str, seconds: float) -> int:
        """Wait until the engine has no open request, at most `seconds`; how many are left."""
        end = asyncio.get_running_loop().time() + seconds
        while (left := self.open(name)) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(LOOK_SECONDS)
        return left

    def open(self, name: str) -> int:
        """Requests that the engine has not answered to the end."""
        backend = self._backends.get(name)
        return backend.upstream.open if backend else 0

    def is_up(self, name: str) -> bool:
        """Whether the engine streams, by its driver's word."""
        backend = self._backends.get(name)
        return backend is not None and backend.is_up

    def trouble(self, name: str) -> str:
        """Why the engine is not up, in its driver's words."""
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
        """New requests of the model go to this engine; those that have a route keep it."""
        self._table = {**self._table, model: replace(self._table[model], live=engine)}
        self._metrics.route(model, engine)

    def trust(self, engine: str) -> None:
        """A passing report put this engine in service; its speech need not be held back."""
        self._gated.add(engine)
        if engine in self._backends:
            self._backends[engine].trust()

    def model_route(self, model: str) -> ModelRoute:
        """Which engines serve the model now."""
        return self._table[model]

    def serves(self, engine: str) -> bool:
        """Whether some model's requests may go to this engine."""
        return any(engine in way.engines for way in self._table.values())

    def model(self, name: str, chats: bool) -> ModelConfig:
        """The configuration of a public model. Raises UnknownModel, or NotForChat if it `chats` not."""
        try:
            model = self._config.models[name]
        except KeyError:
            known = ", ".join(sorted(self._config.models))
            raise UnknownModel(f"there is no model {name[:64]!r} here; there is: {known}") from None
        if chats and model.kind == "embeddings":
            raise NotForChat(f"{name} gives embeddings and nothing else: POST /v1/embeddings")
        return model

    def first(self, model: str) -> Route:
        """The engine to ask: the live one, or the first fallback that takes requests. Raises EngineDown."""
        route = self.next(model, ())
        if route is None:
            engines = ", ".join(self._table[model].engines)
            raise EngineDown(f"no engine of this model is up: {engines}; try again soon")
        return route

    def next(self, model: str, asked: Container[str]) -> Route | None:
        """The engine to ask when those have failed; by what is true now, since failing may have taken seconds."""
        for backend in self._of(self._table[model]):
            if backend.spec.name not in asked and (route := backend.route()) is not None:
                return route
        return None

    def _of(self, way: ModelRoute) -> list[Backend]:
        return [self._backends[name] for name in way.engines if name in self._backends]

    # ---------------------------------------------------------------------------------- as a whole

    @property
    def outstanding(self) -> int:
        """Requests that engines have not answered to the end."""
        return sum(backend.upstream.open for backend in self._backends.values())

    @property
    def is_ready(self) -> bool:
        """Whether some model has an engine that lately streamed a real completion (or embedded a text)."""
        return any(
            backend.route() is not None and backend.age < FRESH_SECONDS
            for way in self._table.values()
            for backend in self._of(way)
        )

    def pardon(self) -> None:
        """Close every breaker, and hold nobody's thoughts against it: whatever engines did is forgotten."""
        for backend in self._backends.values():
            backend.pardon()
            backend.caught = False

    def states(self) -> Mapping[str, EngineState]:
        """What is known of every engine that runs here."""
        return {name: m.engine.state for name, m in self._backends.items() if m.engine}

    async def wait_ready(self) -> None:
        """Return when `is_ready`."""
        while not self.is_ready:
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Let go of every engine; a child ends with us, a container lives on and is found again."""
        await asyncio.gather(*(backend.down(leave=True) for backend in self._backends.values()))


def artefact_digest(artefact: Path | None) -> str:
    """The root digest that the artefact's own manifest states, or "" without a sound one."""
    if artefact is None:
        return ""
    try:
        return load(folder_of(artefact)).root
    except (ArtefactError, OSError):
        return ""
