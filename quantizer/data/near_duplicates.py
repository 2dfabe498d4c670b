"""Find conversations that say the same, or nearly the same: the Jaccard similarity of their word trigrams is at least `NEAR`.

Exact, by the prefix filter: two such sets have one of the first few trigrams in common, in any fixed order (Chaudhuri, Ganti &
Kaushik 2006, ICDE).
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from gates.detect.detection import normalize

NEAR: Final = 0.8

Trigram = tuple[str, str, str]


class NearDuplicates:
    """Texts by name, in the order in which they were added."""

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}
        self._sets: dict[str, frozenset[Trigram]] = {}
        self._first: dict[Trigram, list[str]] = {}

    def add(self, name: str, text: str) -> tuple[str, float] | None:
        """The earlier text that this one is too similar to, with the similarity (1.0: the same); otherwise add it
        and return None."""
        said, grams = _shingled(text)
        if said in self._whole:
            return self._whole[said], 1.0
        prefix = sorted(grams, key=_place)[: len(grams) - math.ceil(NEAR * len(grams)) + 1]
        for other in dict.fromkeys(other for gram in prefix for other in self._first.get(gram, ())):
            both = len(grams & self._sets[other])
            share = both / (len(grams) + len(self._sets[other]) - both)
            if share >= NEAR:
                return other, share
        self._whole[said], self._sets[name] = name, grams
        for gram in prefix:
            self._first.setdefault(gram, []).append(name)
        return None


def compared_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text by which conversations are compared: what user and assistant say, and the tool calls."""
    return " ".join(_said(messages))


def _said(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        if message["role"] in ("user", "assistant"):
            yield str(message.get("content") or "")
            for call in message.get("tool_calls") or ():
                yield f"{call['function']['name']} {call['function']['arguments']}"


@lru_cache(maxsize=65536)  # a run compares the same texts repeatedly
def _shingled(text: str) -> tuple[str, frozenset[Trigram]]:
    said = normalize(text)
    words = said.split()
    return said, frozenset(zip(words, words[1:], words[2:], strict=False))


@lru_cache(maxsize=1 << 20)
def _place(gram: Trigram) -> bytes:
    """A sort key for trigrams that is the same in every process and mixes common and rare ones."""
    return hashlib.blake2b(" ".join(gram).encode(), digest_size=8).digest()
