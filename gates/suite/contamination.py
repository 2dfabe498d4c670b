"""Contamination check: no prompt of a suite may occur in the conversations that a model was trained on. Pure.

The prompt of a case is its last user message. It occurs where a user message equals it, the only rule below 13 words, or where any
message has 13 consecutive words of it (arXiv 2005.14165, appendix C).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from gates.contracts.case import Case, Suite
from gates.contracts.errors import SuiteError
from gates.detect.detection import normalize

NGRAM_WORDS: Final = 13


@dataclass(frozen=True, slots=True)
class Overlap:
    """A prompt that occurs in the data, first in `conversation`: a message is the same, or has a gram of it."""

    case: str
    conversation: int
    kind: Literal["same", "gram"]
    text: str

    def __str__(self) -> str:
        return f"{self.case}: {self.kind} in conversation {self.conversation}: {self.text!r:.160}"


class ContaminationCheck:
    """A suite's prompts, indexed for checking conversations."""

    def __init__(self, suite: Suite) -> None:
        self._whole = defaultdict[str, list[str]](list)
        self._grams = defaultdict[tuple[str, ...], list[str]](list)
        for case in suite.cases:
            if text := normalize(prompt_of(case)):
                self._whole[text].append(case.id)
            for gram in set(_grams(text.split())):
                self._grams[gram].append(case.id)

    def overlaps(self, conversations: Iterable[Mapping[str, Any]]) -> list[Overlap]:
        """Every prompt that occurs in the conversations, once. Raises SuiteError for one without messages."""
        found: dict[str, Overlap] = {}
        for number, conversation in enumerate(conversations):
            for role, text in _normalized_messages(conversation, number):
                for case in self._whole.get(text, ()) if role == "user" else ():
                    found.setdefault(case, Overlap(case, number, "same", text))
                for gram in _grams(text.split()):
                    for case in self._grams.get(gram, ()):
                        found.setdefault(case, Overlap(case, number, "gram", " ".join(gram)))
        return list(found.values())


def prompt_of(case: Case) -> str:
    """The last user message of a case."""
    return str(next(m["content"] for m in reversed(case.messages) if m["role"] == "user"))


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(NGRAM_WORDS)), strict=False)


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
