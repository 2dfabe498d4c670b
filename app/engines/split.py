"""Which side a request goes to while a share of a model's traffic tries a candidate. Pure.

The share is of conversations: of every hundred that begin, as many as `weight` says go to the candidate, evenly spread,
and a conversation stays on its side. One that began earlier counts as new when its next request comes. A higher weight
holds for conversations that come after it. Two that begin with the very same messages are told apart from their third
request on: one of them may change sides at its second.
"""

from collections.abc import Sequence
from typing import Final, Literal, get_args

from app.engines.conversations import Conversations

Side = Literal["candidate", "incumbent"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)


class TrafficSplit:
    """Between a model's live engines and one candidate, which gets `weight` percent."""

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
