"""Choices for a generator: random ones, or those that a fuzzer's bytes make."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Choices out of numbers: `below(limit)` is one from 0 to `limit` - 1."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True once in `one_in` times; never for exhausted bytes."""
        return self.below(one_in) == one_in - 1


def at_random(seed: int) -> Draw:
    """Reproducible random choices."""
    return Draw(random.Random(seed).randrange)


def from_bytes(data: bytes) -> Draw:
    """One byte a choice, so that a fuzzer's mutation of a byte changes one choice. Zeros at the end."""
    left: Iterator[int] = iter(data)
    return Draw(lambda limit: next(left, 0) % limit)
