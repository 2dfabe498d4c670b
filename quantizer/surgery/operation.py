"""The result of one operation of surgery."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["fine", "needed", "refused"]


@dataclass(frozen=True, slots=True)
class OperationResult:
    """operation: its name. state: nothing to do, to be done, or impossible. why: one line. changes: one line for
    each change."""

    operation: str
    state: State
    why: str
    changes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "changes": list(self.changes)}


def fine(operation: str, why: str) -> OperationResult:
    return OperationResult(operation, "fine", why)


def needed(operation: str, why: str, changes: tuple[str, ...]) -> OperationResult:
    return OperationResult(operation, "needed", why, changes)


def refused(operation: str, why: str) -> OperationResult:
    return OperationResult(operation, "refused", why)
