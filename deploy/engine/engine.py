"""The interface of an engine, whichever driver runs it.

Every change of its state creates a new frozen `EngineState`, passes it to the `on_change` callback, and wakes the
callers of `changed()`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from deploy.core.errors import StartFailed
from deploy.engine.abilities import Abilities


class Phase(StrEnum):
    """The phase of an engine. Only `READY` may receive traffic."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """A snapshot of an engine.

    `url` has no trailing slash and no `/v1`; it is set exactly while ready, and changes with every restart. `model` is the name
    to request. `restarts` counts the children after the first since `start()`. `since` is in monotonic seconds. `last_error` may
    quote the engine, so it is for operators and never for a log.
    """

    name: str
    state: Phase = Phase.STOPPED
    url: str | None = None
    model: str | None = None
    pid: int | None = None
    restarts: int = 0
    since: float = 0.0
    last_error: str | None = None
    abilities: Abilities = Abilities()


OnChange = Callable[[EngineState], None]
"""Called in the event loop's thread, once per new snapshot, in order. It must not block."""


class Engine(Protocol):
    """An engine that can be started, observed and stopped."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def url(self) -> str | None:
        """`state.url`: the address while ready, otherwise None."""

    async def start(self) -> EngineState:
        """Start it and return once it has streamed a token; idempotent while running. If the caller is cancelled, it is stopped.

        Raises:
            WeightsError, FlagError: the configuration cannot work; nothing was started.
            StartFailed, StartTimeout: it is `FAILED`, and may be started again.
            StartCancelled: `stop()` came first.
        """
        ...

    def failure(self) -> StartFailed:
        """Why it is `FAILED`, as the error that `start()` raises."""
        ...

    async def stop(self) -> None:
        """Stop it and return once nothing of it is left. Idempotent, safe at any time."""
        ...

    async def leave(self) -> None:
        """Release it because this process ends: the next `start()` adopts a running container; a child process is stopped."""
        ...

    def kill(self, why: str) -> None:
        """End it now (SIGKILL), from any thread: `FAILED` with this reason, and no restart until `start()` or the policy's retry."""

    async def describe(self) -> Mapping[str, Any]:
        """What runs now, from the process or the Docker daemon, as plain JSON values; None or () for what is unknown.

        Always: `name`, `driver`, `spec` (`spec_digest`), `url`, `pid`, `numerics`. Embedded: `argv`, `model_file`. Docker: `argv`,
        `image` (as pinned), `image_id`, `container`, `labels`, `mounts` ({inside: on the host}), `model_file`.
        """
        ...

    async def changed(self, seen: EngineState) -> EngineState:
        """Wait until the state is another than `seen`, and return it (at once if it is)."""
        ...
