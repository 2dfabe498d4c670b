"""The interface of one run of an engine, as a process or as a container, for its supervisor."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Why a run ended; `refused`: another run with this configuration would end the same way."""

    why: str
    refused: bool = False


class EngineRun(Protocol):
    """A process or a container, from its creation to its end."""

    @property
    def pid(self) -> int | None:
        """The id of the running process on this host; None if unknown."""

    async def address(self) -> str | None:
        """Wait until it accepts connections and return its URL; None if it ends before."""
        ...

    def up(self) -> None:
        """Called once it streams: from then on its output may quote requests."""

    def terminate(self) -> None:
        """Terminate it gracefully; no error if it has ended."""

    def kill(self) -> None:
        """Kill it; no error if it has ended. Thread-safe."""

    async def wait(self) -> RunEnd:
        """Wait until it has ended."""
        ...

    def close(self) -> None:
        """Close its pipes and log file."""
