"""Choices for a generator: random ones, or those that a fuzzer's bytes make."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Source(Protocol):
    """Where numbers come from."""

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""


class RandomSource:
    """Reproducible random choices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)


class ByteSource:
    """One byte a choice, so that a fuzzer's mutation of a byte changes one choice. Zeros at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, limit: int) -> int:
        at, self._at = self._at, self._at + 1
        return self._data[at] % limit if at < len(self._data) else 0


class Draw:
    """Choices out of a source."""

    def __init__(self, source: Source) -> None:
        self.below = source.below

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True once in `one_in` times; never for exhausted bytes."""
        return self.below(one_in) == one_in - 1
