"""Contamination check: no prompt of a suite may occur in the conversations that a model was trained on. Pure.

The prompt of a case is its last user message. **same**: a user message equals it, the only rule below 13 words. **gram**: any message
has 13 consecutive words of it (arXiv 2005.14165, appendix C). **near**: the Jaccard similarity of word trigrams is at least 0.6.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from gates.contracts.case import Case, Suite
from gates.contracts.errors import SuiteError
from gates.detect.detection import normalize
from gates.suite.jsonl import read_objects

NGRAM_WORDS: Final = 13
NEAR_DUPLICATE_SHARE: Final = 0.6

Kind = Literal["same", "gram", "near"]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Overlap:
    """A prompt that occurs in the data, first in `conversation`. `share` is 1 for same and gram, the similarity for near."""

    case: str
    conversation: int
    kind: Kind
    share: float
    text: str

    def __str__(self) -> str:
        return f"{self.case}: {self.kind} ({self.share:.2f}) in conversation {self.conversation}: {self.text!r:.160}"


def overlaps(suite: Suite, conversations: Iterable[Mapping[str, Any]]) -> list[Overlap]:
    """Every prompt that occurs in the conversations, once per rule. Raises SuiteError for one without messages."""
    check = ContaminationCheck(suite)
    found: dict[tuple[str, Kind], Overlap] = {}
    for number, conversation in enumerate(conversations):
        for overlap in check.overlaps(conversation, number):
            found.setdefault((overlap.case, overlap.kind), overlap)
    return list(found.values())


class ContaminationCheck:
    """A suite's prompts, indexed for checking conversations one at a time."""

    def __init__(self, suite: Suite) -> None:
        prompts = {case.id: normalize(prompt_of(case)) for case in suite.cases}
        long = {case: words for case, text in prompts.items() if len(words := text.split()) >= NGRAM_WORDS}
        self._whole = _invert((case, {text}) for case, text in prompts.items() if text)
        self._grams = _invert((case, _grams(words)) for case, words in long.items())
        self._begins = frozenset(gram[:3] for gram in self._grams)
        self._trigrams = _invert((case, _trigrams(words)) for case, words in long.items())
        self._sizes = {case: len(_trigrams(words)) for case, words in long.items()}

    def overlaps(self, conversation: Mapping[str, Any], number: int = 0) -> list[Overlap]:
        """Every prompt that occurs in this conversation, at most once per rule. Raises SuiteError as `overlaps` does."""
        found: dict[tuple[str, Kind], Overlap] = {}
        for role, text in _normalized_messages(conversation, number):
            for case, kind, share, words in self._found(role, text):
                found.setdefault((case, kind), Overlap(case, number, kind, share, words))
        return list(found.values())

    def _found(self, role: str, text: str) -> Iterator[tuple[str, Kind, float, str]]:
        if role == "user":
            yield from ((case, "same", 1.0, text) for case in self._whole.get(text, ()))
        words = text.split()
        # Runs in C and rejects most messages at once: they share no trigram with a long prompt.
        if self._trigrams.keys().isdisjoint(zip(words, words[1:], words[2:], strict=False)):
            return
        for i, trigram in enumerate(zip(words, words[1:], words[2:], strict=False)):
            if trigram in self._begins:
                gram = tuple(words[i : i + NGRAM_WORDS])
                yield from ((case, "gram", 1.0, " ".join(gram)) for case in self._grams.get(gram, ()))
        if role == "user":
            yield from ((case, "near", share, text) for case, share in self._near_duplicates(words))

    def _near_duplicates(self, words: Sequence[str]) -> Iterator[tuple[str, float]]:
        trigrams = _trigrams(words)
        common = Counter(case for trigram in trigrams for case in self._trigrams.get(trigram, ()))
        for case, shared in sorted(common.items()):
            share = shared / (len(trigrams) + self._sizes[case] - shared)
            if share >= NEAR_DUPLICATE_SHARE:
                yield case, share


def _invert(pairs: Iterable[tuple[str, set[_Key]]]) -> dict[_Key, list[str]]:
    """From (case, keys) pairs to a mapping from each key to its cases."""
    out: dict[_Key, list[str]] = defaultdict(list)
    for case, keys in pairs:
        for key in keys:
            out[key].append(case)
    return dict(out)


def prompt_of(case: Case) -> str:
    """The last user message of a case."""
    return str(next(m["content"] for m in reversed(case.messages) if m["role"] == "user"))


def _grams(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + NGRAM_WORDS]) for i in range(len(words) - NGRAM_WORDS + 1)}


def _trigrams(words: Sequence[str]) -> set[tuple[str, ...]]:
    return set(zip(words, words[1:], words[2:], strict=False))


# ------------------------------------------------------------------------------------------ search


def _normalized_messages(conversation: Mapping[str, Any], number: int) -> Iterator[tuple[str, str]]:
    """(role, normalized text) of every message."""
    messages = conversation.get("messages") if isinstance(conversation, Mapping) else None
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        raise SuiteError(f"conversation {number}: has no list of messages, so it cannot be cleared")
    for message in messages:
        yield str(message.get("role")), normalize(_text(message.get("content")))


def _text(content: Any) -> str:
    """A message's content as text: a string, a list of parts of which some have text, or nothing."""
    if isinstance(content, list):
        return " ".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    return content if isinstance(content, str) else ""


def read_conversations(path: Path) -> Iterator[dict[str, Any]]:
    """The conversations of a JSONL file. Raises SuiteError that names file and line."""
    return (row for _, row in read_objects(path))
