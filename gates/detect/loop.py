"""Detects replies that repeat themselves: `find_loops`. Pure, and linear in the length of the text.

Repetition is typical of broken quantizations. People repeat things too ("no, no, no"), so each kind has a least length.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from gates.detect.detection import Detection, detection

_RUN: Final = re.compile(r"(?=(.)\1)\S\1{5,}")  # the look ahead: twice as fast where nothing is doubled
_LEAST_RUN: Final = 10  # of points or dashes; people write "......"
_LEAST_RUN_OF_LETTERS: Final = 8  # "soooo good"
_LEAST_RUN_OF_SIGNS: Final = 6
_SIGNS: Final = frozenset("!?#$%&@/\\<>|~^*+=")
_RULE_SIGNS: Final = frozenset("-=_~*#.+—")
_LONGEST_RULE: Final = 120
_LONGEST_NUMBER: Final = 15  # zeros: a million billions has 15
_GARBLED: Final = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|<0x[0-9A-F]{2}>|<unk>")
_MAY_BE_GARBLED: Final = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\x7f<]")
_WORD: Final = re.compile(r"\S+")
_BARE: Final = re.compile(r"[^\w]+")
_SENTENCE: Final = re.compile(r"[^.!?।\n]+[.!?।\n]*")

_GRAM: Final = 3  # words that must recur for a phrase to be noticed
_LEAST_REPEATS: Final = 3
_LEAST_REPEATED: Final = 12  # words that all repeats of a phrase must have together
_LEAST_AGAIN: Final = 4  # n-grams that recur when a sentence of four words is said three times
_LONG_WORD: Final = 24  # minimum characters of a word that is searched for repetition inside
_LEAST_SENTENCE: Final = 4  # words
_SHARE: Final = 0.4  # of 4-grams that occurred before, from 40 words on
_LONG_TEXT: Final = 40


def find_loops(text: str) -> list[Detection]:
    """Every repetition that a person would not make. Kinds: garbled, char_run, unit, phrase, sentence, ngrams."""
    spans = [("garbled", *m.span()) for m in _GARBLED.finditer(text)] if _MAY_BE_GARBLED.search(text) else []
    spans += [("char_run", *m.span()) for m in _RUN.finditer(text) if _is_run(text, m)]
    words = text.casefold().split()
    # Unless some trigrams recur, there is nothing to find.
    grams = len(words) - _GRAM + 1
    if grams - len(set(zip(words, words[1:], words[2:], strict=False))) >= _LEAST_AGAIN:
        spans += _repeated(text)
    if max(map(len, words), default=0) >= _LONG_WORD:
        spans += _units(text)
    spans.sort(key=lambda span: span[1:])
    return [detection("loop", kind, text, start, end) for kind, start, end in spans]


def _is_run(text: str, match: re.Match[str]) -> bool:
    character, length = match[1], match.end() - match.start()
    if character in _RULE_SIGNS and length <= min(_LONGEST_RULE, len(text.strip()) - 1):
        beside = text[match.start() - 1 : match.start()] + text[match.end() : match.end() + 1]
        if not beside.strip(" \t\n|+:"):
            return False  # an underline, a rule, a line of a table
    if character == "0":
        return length > _LONGEST_NUMBER
    if character in _SIGNS:
        return length >= _LEAST_RUN_OF_SIGNS
    return length >= (_LEAST_RUN_OF_LETTERS if character.isalpha() else _LEAST_RUN)


def _repeated(text: str) -> Iterator[tuple[str, int, int]]:
    words = list(_WORD.finditer(text))
    bare = [_BARE.sub("", word.group().casefold()) for word in words]
    phrases = [(words[i].start(), words[j].end()) for i, j in _phrases(bare)]
    if phrases:
        yield from (("phrase", *span) for span in phrases)
        return
    again = _sentences(text)
    if again:
        yield "sentence", *again
    elif len(bare) >= _LONG_TEXT and _said_before(bare) >= _SHARE:
        yield "ngrams", 0, len(text)


def _phrases(items: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(first, last) item of every stretch that repeats one phrase: there, each n-gram last occurred one period ago."""
    last: dict[tuple[str, ...], int] = {}
    start, period, previous = 0, 0, -1
    for i in range(len(items) - _GRAM + 1):
        gram = tuple(items[i : i + _GRAM])
        distance = i - last.get(gram, i)
        last[gram] = i
        if distance and distance == period and previous == i - 1:
            previous = i
            continue
        if period and _is_loop(start, previous, period):
            yield start, previous + _GRAM - 1
        start, period, previous = i - distance, distance, i
    if period and _is_loop(start, previous, period):
        yield start, previous + _GRAM - 1


def _is_loop(start: int, last: int, period: int) -> bool:
    length = last + _GRAM - start
    return length >= _LEAST_REPEATED and length >= _LEAST_REPEATS * period


def _units(text: str) -> Iterator[tuple[str, int, int]]:
    """Long words that repeat a part ("abcabcabcabc..."), as text without spaces does when it loops."""
    for word in _WORD.finditer(text):
        letters = word.group()
        if len(letters) >= _LONG_WORD and "://" not in letters:
            for first, last in _phrases(letters):
                if last - first + 1 >= _LONG_WORD and len(set(letters[first : last + 1])) > 1:
                    yield "unit", word.start() + first, word.start() + last + 1


def _sentences(text: str) -> tuple[int, int] | None:
    """From the first to the last occurrence of a sentence that was said three times."""
    places: dict[str, list[re.Match[str]]] = {}
    for match in _SENTENCE.finditer(text):
        words = match.group().casefold().split()
        if len(words) >= _LEAST_SENTENCE:
            places.setdefault(_BARE.sub(" ", " ".join(words)).strip(), []).append(match)
    for same in places.values():
        if len(same) >= _LEAST_REPEATS:
            return same[0].start(), same[-1].end()
    return None


def _said_before(bare: Sequence[str]) -> float:
    """The share of 4-grams that had occurred before, in [0, 1]."""
    pairs = list(pairwise(bare))
    grams = Counter(zip(pairs, pairs[2:], strict=False))
    total = sum(grams.values())
    return (total - len(grams)) / total if total else 0.0
