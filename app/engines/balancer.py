"""Chooses a replica for a request: the one that has its conversation cached, or the least loaded one. Pure.

An engine caches the prompts that it has processed, and processes only the new part of a request that begins in the same
way. A conversation therefore stays with the replica that had its last turn, unless that has much more load than the others.
Rendezvous hashing of its beginning chooses where it begins, so that gateways with the same replicas agree without asking
each other. Conversations are recognized by their messages (`app.engines.conversations`).
"""

import hashlib
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
        self._without = 0  # the requests that had no messages, which have no cache to return to

    def choose(self, said: Sequence[bytes], loads: Mapping[str, int]) -> Chosen:
        """The replica for a request with these hashes of `conversation`; `loads`: open requests of the eligible replicas."""
        self._without += not said
        beginning = said[0] if said else b"%d" % self._without
        ranked = sorted(loads, key=lambda engine: hashlib.blake2b(beginning + engine.encode()).digest())
        known = self._cached.find(said)
        wanted = known if known is not None and known in loads else ranked[0]
        least = min(loads.values())
        stays = said and loads[wanted] <= max(least + SLACK, least * RATIO)
        engine = wanted if stays else min(ranked, key=loads.__getitem__)
        self._cached.remember(said, engine)
        return Chosen(engine, "new" if known is None else "hit" if engine == known else "moved")
