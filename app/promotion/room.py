"""Whether engines fit into memory together, and who may load one now: `deploy`'s guard and lease, for operations."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from app.promotion.outcome import EffectFailed
from app.promotion.phases import Fault
from app.promotion.plan import Strategy
from deploy.core.errors import DeployError
from deploy.engine.engine import Engine
from deploy.engine.spec import EngineSpec
from deploy.memory.guard import Guard
from deploy.memory.lease import Lease
from deploy.memory.sizing import Memory, strategy

LOAD_SECONDS = 1800.0
"""How long somebody else's load may be waited for."""


class Room:
    """The memory of this host. What was free before an engine's start is kept until its stop."""

    def __init__(self, guard: Guard, lease: Lease) -> None:
        self.lease = lease
        self._guard = guard
        self._before: dict[str, Memory | None] = {}

    def strategy(self, spec: EngineSpec, is_up: bool) -> Strategy:
        """How an engine is brought in beside those that run; what is not known is left to ADMIT."""
        memory = self._guard.memory()
        if is_up or memory is None:
            return Strategy.BLUE_GREEN
        return Strategy(strategy(memory.available, self._need(spec) or 0, memory.floor))

    def account(
        self, spec: EngineSpec, is_up: bool, chosen: Strategy, incumbent: EngineSpec
    ) -> Mapping[str, float | None]:
        """What a dry run says, in bytes; None: not known."""
        memory, need = self._guard.memory(), 0 if is_up else self._need(spec)
        after: int | None = None
        if memory is not None and need is not None:
            freed = (self._need(incumbent) or 0) if chosen is Strategy.STOP_THEN_START else 0
            after = memory.available + freed - need
        return {
            "available_bytes": memory.available if memory else None,
            "needed_bytes": need,
            "floor_bytes": memory.floor if memory else None,
            "after_bytes": after,
        }

    def _need(self, spec: EngineSpec) -> int | None:
        try:
            return self._guard.need(spec)
        except DeployError:
            return None  # it says so itself when it is started

    def admit(self, spec: EngineSpec) -> dict[str, object]:
        """The memory for it is there. Raises EffectFailed."""
        try:
            shortage, need = self._guard.admit(spec), self._guard.need(spec)
        except DeployError as error:
            raise EffectFailed(Fault("artefact", str(error).splitlines()[0])) from None
        if shortage is not None:
            raise EffectFailed(Fault(shortage.code, f"{spec.name} {shortage.why}"))
        memory = self._guard.memory()
        return {"needed_bytes": need, "available_bytes": memory.available if memory else None}

    @contextmanager
    def loading(self, engine: Engine) -> Iterator[None]:
        """Within this, an engine that starts is killed as soon as the host runs short."""
        self._before[engine.name] = self._guard.memory()
        with self._guard.watching(engine):
            yield

    @contextmanager
    def watching(self, engine: Engine) -> Iterator[None]:
        """The same of one that runs and is warmed up."""
        with self._guard.watching(engine):
            yield

    async def came_back(self, name: str) -> bool | None:
        """Whether what an engine took is there again, after its stop; None: nobody looked before."""
        if name not in self._before:
            return None
        return await self._guard.wait_back(self._before.pop(name))
