"""The engine pool: the engines of this gateway, and the routing table from models to engines.

The engines of a model are one immutable value in the table, and `route` swaps it: a request gets its `Route` once and keeps it.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from app.api.reading import UNSUPPORTED
from app.config.config import Config, ModelConfig
from app.engines.affinity import AFFINITIES, SIDES, Balancer, TrafficSplit, conversation
from app.engines.backend import UNIDENTIFIED, Backend, EngineFactory, PoolContext, Route, driver
from app.engines.identity import manifest_of
from app.errors.tree import BadField, EngineDown
from app.stream.thinking_control import ThinkingControl
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics
from deploy.engine.engine import EngineState
from deploy.engine.spec import EngineSpec, Medium

FRESH_SECONDS = 30.0  # seconds after its last token in which an engine counts as ready
USUAL_CONTEXT = 32_768  # of an engine that does not state its context
LOOK_SECONDS = 0.02  # how often a drain checks whether requests are left


@dataclass(frozen=True)
class ModelRoute:
    """Which engines serve a model."""

    live: tuple[str, ...]  # replicas of one another
    fallbacks: tuple[str, ...] = ()
    balancer: Balancer | None = None  # chooses among several live ones
    split: TrafficSplit | None = None  # sends a share to a candidate

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """In the order in which they are tried."""
        tried = () if self.split is None else (self.split.engine,)
        return tuple(dict.fromkeys((*self.live, *self.fallbacks, *tried)))

    @property
    def first(self) -> str:
        """The first of the live engines, by which the registry knows them all."""
        return self.live[0]


class EnginePool:
    """The engines that serve a model or are about to."""

    def __init__(
        self, config: Config, metrics: Metrics, log: Logger, factory: EngineFactory = driver
    ) -> None:
        self._metrics = metrics
        self.changed = asyncio.Event()  # an engine's state, or who serves a model
        self._context = PoolContext(factory, config.state_dir, metrics, log, self.changed)
        self._backends: dict[str, Backend] = {}
        self._gated = self._context.gated
        self._balancers = defaultdict[str, Balancer](Balancer)
        self._table: Mapping[str, ModelRoute] = {}
        self.apply(config)

    def apply(self, config: Config) -> None:
        """Apply a configuration with at least the same models and engines, for new requests."""
        self.config = config  # in force
        for name in config.models.keys() - self._table.keys():
            self._set(name, config.models[name].live)
        for backend in self._backends.values():
            backend.upstream.connect_timeout = config.models[backend.model].timeouts.connect

    # ------------------------------------------------------------------------- engines, one by one

    def backend(self, spec: EngineSpec, model: str) -> Backend:
        """The engine of a spec for a model, started or not; made with the first call."""
        backend = self._backends.get(spec.name)
        if backend is None:
            timeouts, name = self.config.models[model].timeouts, spec.name
            backend = self._backends[name] = Backend(spec, timeouts.connect, self._context, model)
            artefact, image = manifest_of(spec), (spec.image or "").partition("@")[2]
            digest = artefact.root if artefact else ""
            self._metrics.engine(name, False, 0)
            self._metrics.begin("manners_engine_faults_total", (name, "engine"), (name, "request"))
            self._metrics.gauge("manners_engine_info", 1, name, spec.dialect, spec.driver, digest, image)
            in_flight = self._metrics.child("manners_engine_in_flight", name)
            in_flight.set_function(lambda: backend.upstream.open)
            backend.show_control()
            backend.identify(UNIDENTIFIED)
        return backend

    async def take_down(self, name: str) -> None:
        """Stop the engine and return once it has ended; open streams are cut off."""
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

    # ------------------------------------------------------------------------------- replicas

    def takes(self, name: str) -> bool:
        """Whether requests may be sent to the engine now."""
        backend = self._backends.get(name)
        return backend is not None and backend.route() is not None

    def siblings(self, name: str) -> frozenset[str]:
        """The other live engines of the models that this one serves; empty if it is not a replica."""
        live = {one for route in self._table.values() if name in route.live for one in route.live}
        return frozenset(live - {name})

    def stays_out(self, name: str) -> str | None:
        """Why a replica gets no requests, though it may be up; None if it does, or is not a replica."""
        backend = self._backends.get(name)
        return backend.stays_out if backend is not None and name in self._context.replicas else None

    def to_identify(self) -> list[Backend]:
        """Replicas that are up and not identified yet."""
        found = self._of(sorted(self._context.replicas))
        return [backend for backend in found if backend.is_up and backend.stays_out == UNIDENTIFIED]

    def identify(self, name: str, refusal: str = "", detail: str = "") -> None:
        """Admit a replica, or exclude it until it is restarted. `detail` is for operators: it may quote the engine."""
        for backend in self._of((name,)):
            backend.identify(f"{refusal}: {detail}" if refusal else None, refusal)

    def refused(self) -> dict[str, str]:
        """Why each replica that was refused gets no requests, without its words."""
        found = self._of(sorted(self._context.replicas))
        return {backend.spec.name: backend.refusal for backend in found if backend.refusal}

    def trouble(self, name: str) -> str | None:
        """Why the engine takes no requests; None: it is up, and its breaker lets them pass."""
        backend = self._backends.get(name)
        return "it does not run" if backend is None else backend.trouble

    def running(self) -> frozenset[str]:
        """Engines that are up, starting, or being restarted."""
        return frozenset(self._backends)

    # ------------------------------------------------------------------------------------- routes

    def route(self, model: str, *live: str) -> None:
        """Send new requests of the model to these engines; those that have a route keep it."""
        self._set(model, live)
        self.changed.set()
        self._metrics.gauge("manners_shift_weight", 0, model)
        self._metrics.begin("manners_shift_requests_total", *((model, side) for side in SIDES))
        if len(live) > 1:
            self._metrics.begin("manners_affinity_total", *((model, affinity) for affinity in AFFINITIES))
        self._show_gated(model)

    def _set(self, model: str, live: tuple[str, ...]) -> None:
        balancer = self._balancers[model] if len(live) > 1 else None
        route = ModelRoute(live, self.config.models[model].fallback, balancer)
        self._table = {**self._table, model: route}
        self._context.replicas.clear()
        self._context.replicas.update(*(one.live for one in self._table.values() if one.balancer is not None))

    def shift(self, model: str, engine: str, weight: int) -> None:
        """Send an engine that is not live this share of the model's conversations, in percent. `route` ends it."""
        route = self._table[model]
        known = route.split is not None and route.split.engine == engine
        split = route.split if known and route.split else TrafficSplit(engine)
        split.weight = weight
        self._table = {**self._table, model: replace(route, split=split)}
        self._metrics.gauge("manners_shift_weight", weight, model)

    def _show_gated(self, model: str) -> None:
        self._metrics.live(model, {name: name in self._gated for name in self._table[model].live})

    def is_gated(self, engine: str) -> bool:
        """Whether a promotion on a passing report has put this engine in service."""
        return engine in self._gated

    @property
    def ungated(self) -> list[str]:
        """The models with a live engine that was not promoted on a passing report."""
        return sorted(name for name, route in self._table.items() if not self._gated.issuperset(route.live))

    def trust(self, engine: str, gated: bool = True) -> None:
        """Mark the engine as promoted on a passing report; or as not, so that its replies are held back."""
        (self._gated.add if gated else self._gated.discard)(engine)
        if engine in self._backends:
            self._backends[engine].show_control()
        for model, route in self._table.items():
            if engine in route.live:
                self._show_gated(model)

    def model_route(self, model: str) -> ModelRoute:
        """The engines that serve the model now."""
        return self._table[model]

    def serves(self, engine: str) -> bool:
        """Whether some model's requests may go to this engine."""
        return any(engine in route.engines for route in self._table.values())

    def model(self, name: str, chats: bool) -> ModelConfig:
        """The configuration of a public model. Raises UnknownThing; BadField if `chats` and it is for embeddings."""
        model = self.config.model(name)
        if chats and model.kind == "embeddings":
            message = f"{name} gives embeddings and nothing else: POST /v1/embeddings"
            raise BadField(message, "unsupported_by_model", param="model")
        return model

    def context(self, model: str) -> int:
        """The longest prompt and reply together of the model's engines, in tokens."""
        stated = [one.abilities.context or USUAL_CONTEXT for one in self._of(self._table[model].engines)]
        return max(stated, default=USUAL_CONTEXT)

    def first(self, model: str, body: Mapping[str, Any], media: Set[Medium] = frozenset()) -> Route:
        """`next` of a new request. Raises EngineDown: there is none; BadField: none of the engines takes the media."""
        if (route := self.next(model, (), body, media)) is not None:
            return route
        if media and (able := self.next(model, (), body)) is not None:
            missing = sorted(media - set(able.abilities.media), reverse=True)
            kinds = " and ".join({"image": "images", "audio": "sounds"}[one] for one in missing)
            raise BadField(f"no engine of this model that is up takes {kinds}: send text", UNSUPPORTED)
        engines = self._table[model].engines  # one that lives, as slow is better than nothing:
        for backend in self._of(engines):
            if (route := backend.route(last_resort=True)) is not None:
                return route
        raise EngineDown(f"no engine of this model is up: {', '.join(engines)}; try again soon")

    def next(
        self, model: str, asked: Collection[str], body: Mapping[str, Any], media: Set[Medium] = frozenset()
    ) -> Route | None:
        """The route to retry on after the engines `asked` have failed, by the table as it is now.

        `body` is the request: its conversation stays on its side of a split, and goes to the replica that has it cached.
        `media`: what it holds besides text. Ejected engines are asked last.
        """
        table, now = self._table[model], time.monotonic()
        routes: dict[str, Route] = {}
        out = set[str]()
        for name in table.engines:  # no comprehension: it runs in every request
            if (backend := self._backends.get(name)) is None:
                continue
            if backend.outlier.until > now:
                out.add(name)
            route = None if name in asked else backend.route()
            if route is not None and media <= set(route.abilities.media):
                routes[name] = route
        best = routes
        if out and 2 * len(out) <= len(table.engines):  # beyond Envoy's panic threshold nobody is ejected
            best = {name: route for name, route in routes.items() if name not in out}
        if table.split is not None and not asked:
            drawn = table.split.choose(conversation(body.get("messages") or ()))
            side = drawn if table.split.engine in best else "incumbent"
            self._metrics.count("manners_shift_requests_total", model, side)
            if side == "candidate":
                return best[table.split.engine]
        routes = best or routes
        if table.balancer is not None and not routes.keys().isdisjoint(table.live):
            loads = {name: routes[name].backend.upstream.open for name in table.live if name in routes}
            engine, affinity = table.balancer.choose(conversation(body.get("messages") or ()), loads)
            self._metrics.count("manners_affinity_total", model, affinity)
            return routes[engine]
        return next(iter(routes.values()), None)

    def _of(self, names: Iterable[str]) -> list[Backend]:
        return [self._backends[name] for name in names if name in self._backends]

    # ---------------------------------------------------------------------------------- as a whole

    @property
    def outstanding(self) -> int:
        """The number of requests that are open at engines."""
        return sum(backend.upstream.open for backend in self._backends.values())

    @property
    def is_ready(self) -> bool:
        """Whether a model has an engine that recently streamed a real completion (or embedded a text)."""
        return any(
            backend.route() is not None and backend.age < FRESH_SECONDS
            for route in self._table.values()
            for backend in self._of(route.engines)
        )

    def thinking_control(self, name: str) -> ThinkingControl:
        """How far the engine is trusted to keep its reasoning out of the content."""
        return self._backends[name].control if name in self._backends else "unverified"

    def states(self) -> Mapping[str, EngineState]:
        return {name: backend.engine.state for name, backend in self._backends.items() if backend.engine}

    async def wait_ready(self) -> None:
        while not self.is_ready:
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Release every engine: child processes end with us, containers run on and are adopted at the next start."""
        await asyncio.gather(*(backend.down(leave=True) for backend in self._backends.values()))
