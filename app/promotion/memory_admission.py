"""Memory admission: whether engines fit into memory together, and which operation may load one now."""

from collections.abc import Collection
from contextlib import AbstractContextManager, suppress

from app.promotion.state_machine import EffectError, FailureReason, Strategy
from deploy.core.errors import DeployError
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine
from deploy.memory.guard import Guard
from deploy.memory.lease import Lease
from deploy.memory.sizing import Memory, strategy


class MemoryAdmission:
    """The memory of this host. What was free before an engine's load is remembered until its stop."""

    def __init__(self, guard: Guard, lease: Lease) -> None:
        self.lease = lease
        self._guard = guard
        self._before: dict[str, Memory | None] = {}

    def strategy(self, loads: Collection[EngineSpec]) -> Strategy:
        """How to bring in engines beside those that run; where figures are missing, ADMIT decides later."""
        memory = self._guard.memory()
        with suppress(DeployError):  # ADMIT will report the error
            if loads and memory is not None:
                return strategy(memory.available, sum(map(self._guard.need, loads)), memory.floor)
        return "blue_green"

    def admit(self, spec: EngineSpec) -> dict[str, object]:
        """Check that the memory for it is there; the figures as evidence. Raises EffectError."""
        try:
            shortage, need = self._guard.admit(spec), self._guard.need(spec)
        except DeployError as error:
            raise EffectError(FailureReason("artefact", str(error).splitlines()[0])) from None
        if shortage is not None:
            raise EffectError(FailureReason(shortage.code, f"{spec.name} {shortage.why}"))
        memory = self._guard.memory()
        return {"needed_bytes": need, "available_bytes": memory.available if memory else None}

    def guarding(self, engine: Engine, *, loads: bool = False) -> AbstractContextManager[None]:
        """Within this, the engine is killed as soon as the host runs short of memory. `loads`: it is being loaded."""
        if loads:
            self._before[engine.name] = self._guard.memory()  # for `wait_freed`
        return self._guard.watching(engine)

    async def wait_freed(self, name: str) -> bool | None:
        """After its stop: whether an engine's memory is free again; None: its load was not observed."""
        if name not in self._before:
            return None
        return await self._guard.wait_back(self._before.pop(name))
