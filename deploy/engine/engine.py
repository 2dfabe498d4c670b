"""The state of an engine, whichever driver runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

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
