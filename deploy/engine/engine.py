"""The shape every engine has, whoever runs it: a child of ours, a container, or a stranger.

An `Engine` is started once and then kept alive by its driver until it is stopped. What an
observer may know is in one frozen `EngineState`; every change makes a new one, hands it to the
driver's `on_change` callback, and wakes whoever waits in `changed()`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from deploy.engine.abilities import Abilities


class Phase(StrEnum):
    """Where an engine stands. Only `READY` may be given traffic."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """A snapshot of an engine.

    `url` is the address to send requests to, without a trailing slash and without `/v1`; it is
    set exactly while `state` is `READY`, and it changes with every restart. `model` is the name
    that the engine wants in a request's "model", known while ready. `pid` is the child that lives
    now, if the driver has one. `restarts` counts the children after the first since `start()`.
    `since` is when `state` was entered, in monotonic seconds (`time.monotonic`). `last_error`
    says why the engine last left `READY` or did not reach it (for operators: an engine's own words
    may be in it, and no log may have them), and is kept until the next
    `start()`. `abilities` is what it was found to do when it came up.
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
    """Something that can be brought up, watched, and brought down."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def url(self) -> str | None:
        """`state.url`: the address while ready, otherwise None."""

    async def start(self) -> EngineState:
        """Bring it up and return once it has streamed a real token; idempotent while running.

        A caller that gives up (is cancelled) leaves the engine stopped.

        Raises:
            WeightsError, FlagError: the configuration cannot work; nothing was started.
            StartFailed, StartTimeout: it did not come up; it is `FAILED`, and may be started again.
            StartCancelled: `stop()` came first.
        """
        ...

    async def stop(self) -> None:
        """Bring it down and return once nothing of it is left. Idempotent, safe at any time."""
        ...

    async def leave(self) -> None:
        """Let go of it because this process ends: what can live on, lives on, and is found again.

        A container does, and the next `start()` of the same spec adopts it. A child cannot: it is stopped.
        """
        ...

    def kill(self, why: str) -> None:
        """End it now (SIGKILL) and for good: no restart, `FAILED` with this reason, until `start()`.

        From any thread, for a watchdog that must not wait for the loop. A stranger's engine is not
        ours to end: nothing happens.
        """

    async def describe(self) -> Mapping[str, Any]:
        """What runs now, asked of whoever runs it, as plain JSON values; None or () for what is not known.

        Always: `name`, `driver`, `spec` (`spec_digest`), `url`, `pid`. Embedded: `argv`, `model_file`.
        Docker: `argv`, `image` (as pinned), `image_id`, `container` (its id), `labels`, `mounts`
        ({path in the container: path on the host}), `model_file` (the path on the host).
        """
        ...

    async def changed(self, seen: EngineState) -> EngineState:
        """Wait until the state is another than `seen`, and return it (at once if it is)."""
        ...
