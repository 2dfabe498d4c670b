"""Normalizes text for comparison, so that capitals, punctuation and spacing do not matter. Pure."""

import re
import unicodedata

_NOT_ASCII_WORD = re.compile(r"[^a-z0-9]+")
_APOSTROPHES = "'’ʼ"


class _CharacterMap(dict[int, str]):
    """A mapping for `str.translate`: keeps letters, marks and digits, drops apostrophes, and maps the rest to a space."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character if unicodedata.category(character)[0] in "LMN" else " "
        self[code] = "" if character in _APOSTROPHES else kept
        return self[code]


_CHARACTER_MAP = _CharacterMap()


def normalize(text: str) -> str:
    """Lower-case words with single spaces; "What's up?" gives "whats up". Marks are kept: without them Kannada is another word."""
    if text.isascii():
        return _NOT_ASCII_WORD.sub(" ", text.replace("'", "").lower()).strip()
    folded = unicodedata.normalize("NFKC", text).translate(_CHARACTER_MAP).casefold()
    return " ".join(folded.split())
