"""Chooses a replica for a request: the one that has its conversation cached, or the least loaded one. Pure.

An engine caches the prompts that it has processed, and processes only the new part of a request that begins in the same
way. A conversation therefore stays with the replica that had its last turn, unless that has much more load than the others.
A new conversation goes to the replica with the fewest open requests; ties are broken round-robin.

Conversations are recognized by their messages (`app.engines.conversations`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

from app.engines.conversations import Conversations

SLACK: Final = 2
"""A conversation stays where it is cached if that replica has at most this many open requests more than the least loaded,"""
RATIO: Final = 1.5
"""or at most this multiple of its load."""


Affinity = Literal["hit", "moved", "new"]
"""hit: goes where its conversation is cached; moved: known, but goes elsewhere; new: not known."""
AFFINITIES: Final[tuple[Affinity, ...]] = get_args(Affinity)


class Chosen(NamedTuple):
    """The replica that a request goes to, and whether its conversation is cached there."""

    engine: str
    affinity: Affinity


class Balancer:
    """The balancer of one model's replicas."""

    def __init__(self) -> None:
        self._cached = Conversations[str]()  # the replica of each conversation
        self._turns = 0
        self._last: dict[str, int] = {}  # the number of each replica's last choice

    def choose(self, said: Sequence[int], loads: Mapping[str, int]) -> Chosen:
        """The replica for a request with these hashes of `conversation`; `loads`: open requests of the eligible replicas."""
        known = self._cached.find(said)
        least = min(loads.values())
        if known is not None and known in loads and loads[known] <= max(least + SLACK, least * RATIO):
            chosen = Chosen(known, "hit")
        else:
            rest = (engine for engine, load in loads.items() if load == least)
            oldest = min(rest, key=lambda engine: self._last.get(engine, 0))
            chosen = Chosen(oldest, "new" if known is None else "moved")
        self._cached.remember(said, chosen.engine)
        self._turns += 1
        self._last[chosen.engine] = self._turns
        return chosen

    def keep(self, engines: Sequence[str]) -> None:
        """Forget all other replicas. Their conversations move, because they are in no `loads` any more."""
        self._last = {name: turn for name, turn in self._last.items() if name in engines}
