"""One run of an engine: what its supervisor needs of a process or of a container."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended, in words; `refused`: with this configuration another run would end the same way."""

    why: str
    refused: bool = False


class EngineRun(Protocol):
    """A process or a container, from its creation to its end."""

    @property
    def pid(self) -> int | None:
        """The process that runs now, in this host's numbering; None if it is not known."""

    async def address(self) -> str | None:
        """Wait until it accepts connections; its URL, or None if it will end by itself without that."""
        ...

    def up(self) -> None:
        """Called when it streams: from now on its output may quote requests."""

    def terminate(self) -> None:
        """Ask it to end; no error if it has ended."""

    def kill(self) -> None:
        """End it; no error if it has ended. May be called from any thread."""

    async def wait(self) -> RunEnd:
        """Wait for its end."""
        ...

    def close(self) -> None:
        """Release what we hold of it: pipes, log file."""
