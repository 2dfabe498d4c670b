"""Sends a request to a replica, or to a candidate's share, by the conversation that it continues. Pure.

Conversations are recognized by their messages alone, without any id that a caller sends: a request continues a conversation if
its first messages are all the messages of an earlier request. A system prompt alone does not make one.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeVar, get_args

MAX_CONVERSATIONS: Final = 16_384  # remembered for a model, the latest ones; each takes about 200 bytes
SLACK: Final = 2  # a conversation stays where it is cached up to so many requests more than the least load,
RATIO: Final = 1.5  # or up to this multiple of it

Affinity = Literal["hit", "moved", "new"]
"""hit: goes where its conversation is cached; moved: known, but goes elsewhere; new: not known."""
AFFINITIES: Final[tuple[Affinity, ...]] = get_args(Affinity)
Side = Literal["candidate", "incumbent"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)

T = TypeVar("T")


def conversation(messages: Sequence[Any]) -> tuple[bytes, ...]:
    """A hash for each message and all before it, the same in every process; the first is of the first that is no instruction."""
    found: list[bytes] = []
    so_far = hashlib.blake2b(digest_size=8)
    for message in messages:
        so_far.update(repr(message).encode())  # repr: it never fails, whatever numbers are in it
        if found or message["role"] not in ("system", "developer"):
            found.append(so_far.digest())
    return tuple(found)


class Conversations(Generic[T]):
    """The choice that was made for each of the latest `most` conversations."""

    def __init__(self, most: int = MAX_CONVERSATIONS) -> None:
        self._most = most
        self._went = OrderedDict[bytes, T]()  # by the hash over all messages of a request

    def find(self, said: Sequence[bytes]) -> T | None:
        """The choice for the conversation that these hashes (of `conversation`) continue; None for a new one."""
        return next((self._went[one] for one in reversed(said[:-1]) if one in self._went), None)

    def remember(self, said: Sequence[bytes], where: T) -> None:
        """Record the choice for a request."""
        if not said:
            return
        self._went[said[-1]] = where
        self._went.move_to_end(said[-1])
        if len(self._went) > self._most:
            self._went.popitem(last=False)


class Balancer:
    """Chooses among one model's replicas: the one that has the conversation cached, or the least loaded one.

    An engine processes only the new part of a prompt whose beginning it has cached. Rendezvous hashing of the beginning
    chooses where a conversation begins, so that gateways with the same replicas agree without asking each other.
    """

    def __init__(self) -> None:
        self._cached = Conversations[str]()  # the replica of each conversation
        self._without = 0  # the requests that had no messages, which have no cache to return to

    def choose(self, said: Sequence[bytes], loads: Mapping[str, int]) -> tuple[str, Affinity]:
        """The replica for a request with this `conversation`; `loads`: open requests of the eligible replicas."""
        self._without += not said
        beginning = said[0] if said else b"%d" % self._without
        ranked = sorted(loads, key=lambda engine: hashlib.blake2b(beginning + engine.encode()).digest())
        known = self._cached.find(said)
        wanted = known if known is not None and known in loads else ranked[0]
        least = min(loads.values())
        stays = said and loads[wanted] <= max(least + SLACK, least * RATIO)
        engine = wanted if stays else min(ranked, key=loads.__getitem__)
        self._cached.remember(said, engine)
        return engine, "new" if known is None else "hit" if engine == known else "moved"


class TrafficSplit:
    """Between a model's live engines and one candidate, which gets `weight` percent of the conversations, evenly spread.

    A conversation stays on its side. A higher weight holds for those that come after it. Two that begin with the same
    messages share a key until their third request, so one may change sides at its second.
    """

    def __init__(self, engine: str, weight: int = 0) -> None:
        self.engine = engine
        self.weight = weight
        self._sides = Conversations[Side]()
        # Percent of a conversation that the candidate is behind its share; so the first comes halfway.
        self._due = 50

    def choose(self, said: Sequence[bytes]) -> Side:
        """The side for a request, by its `conversation`."""
        side = self._sides.find(said) or self._draw()
        self._sides.remember(said, side)
        return side

    def _draw(self) -> Side:
        self._due += self.weight
        if self._due < 100:
            return "incumbent"
        self._due -= 100
        return "candidate"
