"""One run of an engine, whatever it is: what the shell needs to know of a process or a container."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended, in words; `refused`: it said that another one like it would end the same way."""

    why: str
    refused: bool = False


class Run(Protocol):
    """One run of an engine: a process, or a container."""

    @property
    def pid(self) -> int | None:
        """The process that lives now, as this machine numbers it."""

    async def address(self) -> str | None:
        """Wait until it can be connected to; None: it will not come to that, and ends by itself."""
        ...

    def up(self) -> None:
        """It streams: from now on its output may quote requests."""

    def terminate(self) -> None:
        """Ask it to end; no error if it has."""

    def kill(self) -> None:
        """End it; no error if it has. May be called from any thread."""

    async def wait(self) -> End:
        """Wait for its end."""
        ...

    def close(self) -> None:
        """Give up our ends of it."""
