"""Which replica of a model a request goes to: where its conversation is cached, or where there is least to do. Pure.

An engine keeps what it has read in a cache, and reads only what is new of a request that begins in the same way. So
a conversation goes on at the replica that had its last turn, as long as that has not much more to do than the others.
A new conversation goes to the replica with the fewest open requests, and in turns where they have equally many.

Conversations are known by their messages (`app.engines.conversations`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

from app.engines.conversations import MAX_CONVERSATIONS, Conversations

SLACK: Final = 2
"""A conversation stays where it is cached if that replica has at most so many open requests more than the least loaded,"""
RATIO: Final = 1.5
"""or at most so many times as many."""


Affinity = Literal["hit", "moved", "new"]
"""It goes where its conversation is cached; the conversation is known, and it goes elsewhere; it is not known."""
AFFINITIES: Final[tuple[Affinity, ...]] = get_args(Affinity)


class Chosen(NamedTuple):
    """The replica that a request goes to, and whether its conversation is cached there."""

    engine: str
    affinity: Affinity


class Balancer:
    """Of one model's replicas. It remembers the latest `most` conversations."""

    def __init__(self, most: int = MAX_CONVERSATIONS) -> None:
        self._cached = Conversations[str](most)  # by the replica that had them
        self._turns = 0
        self._last: dict[str, int] = {}  # of each replica, the turn in which it was chosen last

    def __len__(self) -> int:
        return len(self._cached)

    def choose(self, said: Sequence[int], loads: Mapping[str, int]) -> Chosen:
        """The replica for a request, by its `conversation`; `loads` are the open requests of those that may have it."""
        known = self._cached.find(said)
        least = min(loads.values())
        if known is not None and known in loads and loads[known] <= max(least + SLACK, least * RATIO):
            chosen = Chosen(known, "hit")
        else:
            rest = (engine for engine, load in loads.items() if load == least)
            chosen = Chosen(min(rest, key=self._turn_of), "new" if known is None else "moved")
        self._cached.remember(said, chosen.engine)
        self._turns += 1
        self._last[chosen.engine] = self._turns
        return chosen

    def keep(self, engines: Sequence[str]) -> None:
        """Forget when replicas other than these were chosen. Conversations that they had go elsewhere: they are in no `loads`."""
        self._last = {name: turn for name, turn in self._last.items() if name in engines}

    def _turn_of(self, engine: str) -> int:
        return self._last.get(engine, 0)
