"""Recognizes conversations by their messages alone, without any id that a caller sends. Pure.

The messages of each request are hashed. A request continues a conversation if its first messages are all the
messages of an earlier request. A system prompt alone does not make a conversation.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

MAX_CONVERSATIONS: Final = 16_384
"""The number of latest conversations remembered per model; each takes about 200 bytes."""

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
