"""What one operation found and did. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["fine", "needed", "refused"]


@dataclass(frozen=True, slots=True)
class Step:
    """operation: its name. why: one line. changes: what it does to the folder, a line each."""

    operation: str
    state: State
    why: str
    changes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "changes": list(self.changes)}
