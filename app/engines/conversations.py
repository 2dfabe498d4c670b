"""Conversations, known by their messages alone, not by any id that a caller sends. Pure.

By a hash of the messages of each request. A request goes on with a conversation if its first messages are all the
messages of an earlier request. A system prompt alone is no conversation.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

MAX_CONVERSATIONS: Final = 16_384
"""Conversations of a model that are remembered, the latest ones; each takes about 200 bytes."""

T = TypeVar("T")


def conversation(messages: Sequence[Any]) -> tuple[int, ...]:
    """One number for each message, which stands for it and all before it. They mean nothing in another process."""
    found, so_far = [], 0
    for message in messages:
        so_far = hash((so_far, repr(message)))  # repr: it never fails, whatever numbers are in it
        found.append(so_far)
    return tuple(found)


class Conversations(Generic[T]):
    """Where each of the latest `most` conversations went."""

    def __init__(self, most: int = MAX_CONVERSATIONS) -> None:
        self._most = most
        self._went = OrderedDict[int, T]()  # by all messages of a request

    def __len__(self) -> int:
        return len(self._went)

    def find(self, said: Sequence[int]) -> T | None:
        """Where the conversation went that a request, by its `conversation`, goes on with; None: it is not known."""
        return next((self._went[one] for one in reversed(said[:-1]) if one in self._went), None)

    def remember(self, said: Sequence[int], where: T) -> None:
        """The request went there."""
        if not said:
            return
        self._went[said[-1]] = where
        self._went.move_to_end(said[-1])
        if len(self._went) > self._most:
            self._went.popitem(last=False)
