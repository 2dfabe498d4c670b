"""Recognizes conversations by their messages alone, without any id that a caller sends. Pure.

The messages of each request are hashed. A request continues a conversation if its first messages are all the
messages of an earlier request. A system prompt alone does not make a conversation.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

MAX_CONVERSATIONS: Final = 16_384
"""The number of latest conversations remembered per model; each takes about 200 bytes."""

T = TypeVar("T")


def conversation(messages: Sequence[Any]) -> tuple[int, ...]:
    """A hash for each message and all before it. The hashes are valid in this process only."""
    found, so_far = [], 0
    for message in messages:
        so_far = hash((so_far, repr(message)))  # repr: it never fails, whatever numbers are in it
        found.append(so_far)
    return tuple(found)


class Conversations(Generic[T]):
    """The choice that was made for each of the latest `most` conversations."""

    def __init__(self, most: int = MAX_CONVERSATIONS) -> None:
        self._most = most
        self._went = OrderedDict[int, T]()  # by the hash over all messages of a request

    def find(self, said: Sequence[int]) -> T | None:
        """The choice for the conversation that these hashes (of `conversation`) continue; None for a new one."""
        return next((self._went[one] for one in reversed(said[:-1]) if one in self._went), None)

    def remember(self, said: Sequence[int], where: T) -> None:
        """Record the choice for a request."""
        if not said:
            return
        self._went[said[-1]] = where
        self._went.move_to_end(said[-1])
        if len(self._went) > self._most:
            self._went.popitem(last=False)
