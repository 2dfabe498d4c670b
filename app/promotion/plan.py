"""What an operation is going to do, settled before it begins: a value that recovery can read again.

Pure. Engines are named by the digest of their spec: a name in the configuration can come to mean
another engine while an operation is under way, and a digest cannot.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What was asked for."""

    PROMOTE = "promote"
    ROLLBACK = "rollback"


class Strategy(StrEnum):
    """Whether the memory holds the incumbent and the candidate at once.

    `BLUE_GREEN` does: the incumbent serves until the switch and stands by until the bake is over.
    `STOP_THEN_START` does not: the incumbent goes first, and the fallback serves meanwhile.
    """

    BLUE_GREEN = "blue_green"
    STOP_THEN_START = "stop_then_start"


class PlanError(ValueError):
    """A plan that could not be carried out without an interruption; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One operation on one public model.

    `incumbent` serves when it begins, `candidate` when it has succeeded. `generation` is the one of
    the model's `live` alias that the plan was made at: if it has moved since, the plan is void.
    `previous` is what that alias pointed to just then, to be put back when the switch is undone.
    `resident` engines are never stopped by this operation: the fallbacks, and those that other
    models are served by. `bake_s` is how long the candidate is watched after the switch, in seconds.

    Raises:
        PlanError: the engines do not fit together.
    """

    operation: str
    kind: Kind
    model: str
    candidate: str
    incumbent: str
    strategy: Strategy
    generation: int
    previous: str | None = None
    fallback: str | None = None
    resident: tuple[str, ...] = ()
    report: str | None = None
    bake_s: float = 600.0

    def __post_init__(self) -> None:
        if self.candidate == self.incumbent:
            raise PlanError(f"{self.model} is served by this engine already; there is nothing to change")
        if self.kind is Kind.PROMOTE and self.report is None:
            raise PlanError("a promotion needs a report")
        if self.strategy is Strategy.STOP_THEN_START:
            self._check_there_is_room()

    def _check_there_is_room(self) -> None:
        """Stop-then-start frees the incumbent's memory, so somebody else must serve meanwhile."""
        pair = {self.candidate, self.incumbent}
        if self.fallback is None or self.fallback in pair:
            raise PlanError(
                "both engines do not fit into memory at once, and there is no third to serve meanwhile:"
                f" give {self.model} a fallback"
            )
        if pair & {*self.resident}:
            raise PlanError("both engines do not fit into memory at once, and one of them has to stay")
