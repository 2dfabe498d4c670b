"""The phases of an operation, the events that lead from one to the next, and why one goes wrong. Pure values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Where an operation stands."""

    QUEUED = "queued"
    PREFLIGHT = "preflight"
    ADMITTED = "admitted"
    STARTING = "starting"
    HEALTHY = "healthy"
    WARMING = "warming"
    CANARY = "canary"
    SWITCHING = "switching"
    RESUMING = "resuming"
    DRAINING = "draining"
    BAKING = "baking"
    RETIRING = "retiring"
    ROLLING_BACK = "rolling_back"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    STUCK = "stuck"


FINAL: Final = frozenset(
    {Phase.SUCCEEDED, Phase.REJECTED, Phase.FAILED, Phase.CANCELLED, Phase.ROLLED_BACK, Phase.STUCK}
)
SWITCHED: Final = frozenset({Phase.SWITCHING, Phase.RESUMING, Phase.DRAINING, Phase.BAKING, Phase.RETIRING})
"""The alias points to the candidate."""
UNTOUCHED: Final = frozenset({Phase.QUEUED, Phase.PREFLIGHT})
"""Nothing has been done that would have to be undone."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why it went wrong: a word for programs and a line for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Its turn has come."""


@dataclass(frozen=True, slots=True)
class Done:
    """The effect of this key has been brought about."""

    key: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect of this key could not be brought about."""

    key: str
    fault: Fault


@dataclass(frozen=True, slots=True)
class Refused:
    """The check of this key said no."""

    key: str
    fault: Fault


@dataclass(frozen=True, slots=True)
class Breached:
    """Live traffic saw the candidate misbehave, fail or vanish."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Cancel:
    """An operator does not want it any more."""

    by: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The gateway has come up and found this operation unfinished."""


Event = Begin | Done | Failed | Refused | Breached | Cancel | Restart
