"""Which replica of a model a request goes to: where its conversation is cached, or where there is least to do. Pure.

An engine keeps what it has read in a cache, and reads only what is new of a request that begins in the same way. So
a conversation goes on at the replica that had its last turn, as long as that has not much more to do than the others.
A new conversation goes to the replica with the fewest open requests, and in turns where they have equally many.

Conversations are known by their messages alone, not by any id that a caller sends: by a hash of the messages of
each request. A request goes on with a conversation if its first messages are all the messages of an earlier request. A
system prompt alone is no conversation: every replica learns it with its first one.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

MAX_CONVERSATIONS: Final = 16_384
"""Conversations of a model that are remembered, the latest ones; each takes about 200 bytes."""
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


def conversation(messages: Sequence[Any]) -> tuple[int, ...]:
    """One number for each message, which stands for it and all before it. They mean nothing in another process."""
    found, so_far = [], 0
    for message in messages:
        so_far = hash((so_far, repr(message)))  # repr: it never fails, whatever numbers are in it
        found.append(so_far)
    return tuple(found)


class Balancer:
    """Of one model's replicas. It remembers the latest `most` conversations."""

    def __init__(self, most: int = MAX_CONVERSATIONS) -> None:
        self._most = most
        self._cached = OrderedDict[int, str]()  # by all messages of a request, the replica that had it
        self._turns = 0
        self._last: dict[str, int] = {}  # of each replica, the turn in which it was chosen last

    def __len__(self) -> int:
        return len(self._cached)

    def choose(self, said: Sequence[int], loads: Mapping[str, int]) -> Chosen:
        """The replica for a request, by its `conversation`; `loads` are the open requests of those that may have it."""
        known = next((self._cached[one] for one in reversed(said[:-1]) if one in self._cached), None)
        least = min(loads.values())
        if known is not None and known in loads and loads[known] <= max(least + SLACK, least * RATIO):
            chosen = Chosen(known, "hit")
        else:
            rest = (engine for engine, load in loads.items() if load == least)
            chosen = Chosen(min(rest, key=self._turn_of), "new" if known is None else "moved")
        self._remember(said, chosen.engine)
        return chosen

    def keep(self, engines: Sequence[str]) -> None:
        """Forget when replicas other than these were chosen. Conversations that they had go elsewhere: they are in no `loads`."""
        self._last = {name: turn for name, turn in self._last.items() if name in engines}

    def _turn_of(self, engine: str) -> int:
        return self._last.get(engine, 0)

    def _remember(self, said: Sequence[int], engine: str) -> None:
        self._turns += 1
        self._last[engine] = self._turns
        if not said:
            return
        self._cached[said[-1]] = engine
        self._cached.move_to_end(said[-1])
        if len(self._cached) > self._most:
            self._cached.popitem(last=False)
