"""Text as words, for comparing: what makes two texts the same text to a judge or to the wall. Pure."""

from __future__ import annotations

import re
import unicodedata

_NOT_ASCII_WORD = re.compile(r"[^a-z0-9]+")
_APOSTROPHES = "'’ʼ"


class _Kept(dict[int, str]):
    """For `str.translate`: letters, marks and digits stay, apostrophes go, the rest is a space."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character if unicodedata.category(character)[0] in "LMN" else " "
        self[code] = "" if character in _APOSTROPHES else kept
        return self[code]


_KEPT = _Kept()


def normal(text: str) -> str:
    """Letters, marks and digits in lower case, one space between words; "What's up?" is "whats up".

    Marks count as letters: without its vowel signs a Kannada word is another word, or none.
    """
    if text.isascii():
        return _NOT_ASCII_WORD.sub(" ", text.replace("'", "").lower()).strip()
    folded = unicodedata.normalize("NFKC", text).translate(_KEPT).casefold()
    return " ".join(folded.split())


def words(text: str) -> list[str]:
    """The words of a text, as `normal` has them."""
    return normal(text).split()
