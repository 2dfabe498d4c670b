"""The contamination wall: no prompt of a suite may be among the conversations that a model was made of.

A prompt is what a case's user says last; the system prompt, the tools and the turns before it may
well be production's, and training's too. A conversation is {"messages": [...]}, as data files have
it. Three rules; numbers in the names are words, and words are compared as `gates/suite/phrases.py` has them:

* **same**: some user turn of a conversation is the whole prompt. It is the only rule for prompts of
  fewer than 13 words, in which a shared phrase proves nothing.
* **gram**: 13 words in a row of the prompt are in anybody's message, the system's too (the measure of
  GPT-3's report, arXiv 2005.14165, appendix C, and of most since).
* **near**: a user turn has at least 0.6 of the prompt's word trigrams in common, as a share of all
  trigrams in either (Jaccard). One word in fifteen exchanged is .63. MinHash estimates this number
  where both sides are too many to compare; a suite is a thousand prompts, so here it is computed.

Pure but for the command at the end: `python -m gates.suite.contamination SUITE FILE.jsonl ...`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from gates.contracts.case import Case, Suite
from gates.contracts.errors import GatesError, SuiteError
from gates.suite.load import load_suite
from gates.suite.phrases import normal

GRAM: Final = 13
NEAR: Final = 0.6

Kind = Literal["same", "gram", "near"]
_Trigram = tuple[str, str, str]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Overlap:
    """A prompt that is in the data: the first conversation (counted from 0) that has it by this rule.

    `share` is 1 for same and gram, the trigrams' share for near; `text` is what was found there.
    """

    case: str
    conversation: int
    kind: Kind
    share: float
    text: str

    def __str__(self) -> str:
        return f"{self.case}: {self.kind} ({self.share:.2f}) in conversation {self.conversation}: {self.text!r:.160}"


def is_own_data(suite: Suite, data_digest: str | None) -> bool:
    """Whether an artefact's `data_digest` says that it was made of the suite itself."""
    return data_digest == suite.digest


def overlaps(suite: Suite, conversations: Iterable[Mapping[str, Any]]) -> list[Overlap]:
    """Every prompt that the conversations have, once for each rule, in the order found.

    Raises SuiteError for a conversation without messages: what cannot be read cannot be cleared.
    """
    wall = Wall(suite)
    found: dict[tuple[str, Kind], Overlap] = {}
    for number, conversation in enumerate(conversations):
        for overlap in wall.overlaps(conversation, number):
            found.setdefault((overlap.case, overlap.kind), overlap)
    return list(found.values())


class Wall:
    """A suite's prompts, ready for conversations that come one at a time."""

    def __init__(self, suite: Suite) -> None:
        self._index = _index(suite.cases)

    def overlaps(self, conversation: Mapping[str, Any], number: int = 0) -> list[Overlap]:
        """Every prompt that this conversation has, once for each rule. Raises SuiteError as `overlaps` does."""
        found: dict[tuple[str, Kind], Overlap] = {}
        for role, text in _said(conversation, number):
            for overlap in _in_turn(self._index, number, role, text):
                found.setdefault((overlap.case, overlap.kind), overlap)
        return list(found.values())


# ------------------------------------------------------------------------------------------- index


@dataclass(frozen=True, slots=True)
class _Index:
    """The suite's side, by what is looked up in it; `long` are prompts of 13 words and more."""

    whole: Mapping[str, Sequence[str]]  # prompt: cases
    grams: Mapping[tuple[str, ...], Sequence[str]]  # 13 words: cases
    begins: frozenset[_Trigram]  # of those 13 words, the first three
    trigrams: Mapping[_Trigram, Sequence[str]]  # of long prompts: the cases that have it
    sizes: Mapping[str, int]  # long case: number of its trigrams


def _index(cases: Iterable[Case]) -> _Index:
    prompts = {case.id: normal(prompt_of(case)) for case in cases}
    long = {case: said for case, text in prompts.items() if len(said := text.split()) >= GRAM}
    grams = _turned((case, _grams(said)) for case, said in long.items())
    return _Index(
        whole=_turned((case, {text}) for case, text in prompts.items() if text),
        grams=grams,
        begins=frozenset((gram[0], gram[1], gram[2]) for gram in grams),
        trigrams=_turned((case, _trigrams(said)) for case, said in long.items()),
        sizes={case: len(_trigrams(said)) for case, said in long.items()},
    )


def _turned(pairs: Iterable[tuple[str, set[_Key]]]) -> dict[_Key, list[str]]:
    """From cases and what they have to what there is and which cases have it."""
    out: dict[_Key, list[str]] = defaultdict(list)
    for case, keys in pairs:
        for key in keys:
            out[key].append(case)
    return dict(out)


def prompt_of(case: Case) -> str:
    """What the user says last."""
    return str(next(m["content"] for m in reversed(case.messages) if m["role"] == "user"))


def _grams(said: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(said[i : i + GRAM]) for i in range(len(said) - GRAM + 1)}


def _trigrams(said: Sequence[str]) -> set[_Trigram]:
    return set(zip(said, said[1:], said[2:], strict=False))


# ------------------------------------------------------------------------------------------ search


def _said(conversation: Mapping[str, Any], number: int) -> Iterator[tuple[str, str]]:
    """(role, normal text) of every message."""
    messages = conversation.get("messages") if isinstance(conversation, Mapping) else None
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        raise SuiteError(f"conversation {number}: has no list of messages, so it cannot be cleared")
    for message in messages:
        yield str(message.get("role")), normal(_text(message.get("content")))


def _text(content: Any) -> str:
    """Content as text: it is one, or parts of which some have one, or nothing."""
    if isinstance(content, list):
        return " ".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    return content if isinstance(content, str) else ""


def _in_turn(index: _Index, number: int, role: str, text: str) -> Iterator[Overlap]:
    if role == "user":
        yield from (Overlap(case, number, "same", 1.0, text) for case in index.whole.get(text, ()))
    said = text.split()
    # In C, and for most messages the last word: not one trigram of theirs is in a long prompt.
    if not index.trigrams or index.trigrams.keys().isdisjoint(zip(said, said[1:], said[2:], strict=False)):
        return
    for i, trigram in enumerate(zip(said, said[1:], said[2:], strict=False)):
        if trigram in index.begins:
            gram = tuple(said[i : i + GRAM])
            yield from (Overlap(c, number, "gram", 1.0, " ".join(gram)) for c in index.grams.get(gram, ()))
    if role == "user":
        yield from _near(index, number, said)


def _near(index: _Index, number: int, said: Sequence[str]) -> Iterator[Overlap]:
    trigrams = _trigrams(said)
    common = Counter(case for trigram in trigrams for case in index.trigrams.get(trigram, ()))
    for case, shared in sorted(common.items()):
        share = shared / (len(trigrams) + index.sizes[case] - shared)
        if share >= NEAR:
            yield Overlap(case, number, "near", share, " ".join(said))


# ----------------------------------------------------------------------------------------- command


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The conversations of a JSONL file. Raises SuiteError with file and line."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _row(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: cannot be read ({error})") from None


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        raise SuiteError(f"{where}: is no conversation; a line is an object with messages")
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the files are clean, 1 when they are not, 65 (EX_DATAERR) when that cannot be told."""
    parser = argparse.ArgumentParser(
        prog="python -m gates.suite.contamination", description="Is a suite in this data?"
    )
    parser.add_argument("suite", help="a shipped suite's name, or a .toml file")
    parser.add_argument("data", nargs="+", type=Path, help="JSONL files of conversations")
    given = parser.parse_args(arguments)
    try:
        suite = load_suite(given.suite)
        found = [(path, overlap) for path in given.data for overlap in overlaps(suite, read(path))]
    except GatesError as error:
        sys.stderr.write(f"{error}\n")
        return 65
    for path, overlap in found:
        sys.stdout.write(f"{path}: {overlap}\n")
    sys.stdout.write(f"{len(found)} overlaps with {suite.name} {suite.digest}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
