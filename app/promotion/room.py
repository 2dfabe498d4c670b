"""Whether engines fit into memory together, and how much each takes, as far as that is known."""

from collections.abc import Callable, Mapping

from app.promotion.plan import Strategy
from deploy.spec import EngineSpec


class Room:
    """The memory of this host. `available` reads MemAvailable in bytes."""

    def __init__(self, available: Callable[[], float]) -> None:
        self._available = available

    def strategy(self, spec: EngineSpec) -> Strategy:
        """How an engine is brought in beside those that run."""
        return Strategy.BLUE_GREEN

    def account(
        self, spec: EngineSpec, strategy: Strategy, incumbent: EngineSpec
    ) -> Mapping[str, float | None]:
        """What a dry run says, in bytes; None: not known."""
        return {
            "available_bytes": self._available(),
            "needed_bytes": None,
            "floor_bytes": None,
            "after_bytes": None,
        }
