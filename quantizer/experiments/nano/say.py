"""How a person would type or say a prompt: case, punctuation, a name in front. Pure and seeded."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_FRONTS = (
    "Annie, ",
    "Hey Annie, ",
    "Hi Annie, ",
    "Okay Annie, ",
    "Please ",
    "So, ",
    "Tell me, ",
    "Annie ",
)


@dataclass(frozen=True, slots=True)
class Voice:
    """One way of typing, held for a whole prompt so that its slots are typed the same way."""

    lower: bool
    front: str
    stop: bool
    please: bool

    def word(self, text: str) -> str:
        """A slot's text as it appears in the prompt."""
        return text.lower() if self.lower else text

    def prompt(self, plain: str) -> str:
        """A plain-case sentence as a prompt; `I` and slots keep their capitals unless all is lower."""
        text = plain if self.stop else plain.rstrip("?!.")
        if self.please and not text.endswith("!"):
            end = text[-1] if text[-1] in "?." else ""
            text = text.removesuffix(end) + " please" + end
        text = self.front + text
        return text.lower() if self.lower else text[0].upper() + text[1:]


def voice(rng: random.Random) -> Voice:
    """Most prompts are typed properly; some are in lower case, without a stop, or addressed."""
    front = rng.choice(_FRONTS) if rng.random() < 0.2 else ""
    return Voice(rng.random() < 0.2, front, rng.random() < 0.75, rng.random() < 0.05)


def varied(rng: random.Random, make: Callable[[Voice], str]) -> str:
    """A prompt made by `make` in a voice drawn here."""
    return make(voice(rng))
