"""Estimates how long a text takes to say: `spoken_seconds`, `find_too_long`. Pure.

English at 2.5 words a second, digits as the words that say them. Kannada is counted by aksharas at five a second: a convention
by Coupé et al. 2019 (Science Advances 5:eaaw2594), whose 17 languages do not include it.
"""

import re
from collections.abc import Iterator
from typing import Final

from gates.detect.detection import Detection, detection
from gates.detect.number_words import spoken_length

WORDS_PER_SECOND: Final = 2.5
AKSHARAS_PER_SECOND: Final = 5.0

_PIECE: Final = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{2,3})+(?:\.\d+)?|\d+(?:[.:]\d+)?)|(?P<kannada>[\u0c80-\u0cff\u200c\u200d]+)"
    r"|(?P<word>[^\W\d_]+(?:['’-][^\W\d_]+)*)|(?P<sign>[₹$€£%°&+=@])"
)
# A consonant or vowel begins an akshara unless a virama joins it to the previous one.
_AKSHARA: Final = re.compile(r"(?<!\u0ccd)(?<!\u0ccd\u200d)[\u0c85-\u0cb9\u0cde\u0ce0\u0ce1]")
_KANNADA_DIGIT: Final = re.compile(r"[\u0ce6-\u0cef]")
_LONGEST_NUMBER: Final = 9  # digits that are said as one number; longer ones are said digit by digit


def spoken_seconds(text: str) -> float:
    """Seconds needed to say a text, without pauses."""
    return sum(seconds for _, seconds in _pieces(text))


def spoken_words(text: str) -> int:
    """The number of words as spoken; a Kannada word counts as one."""
    return sum(_number_words(m["number"]) if m["number"] else 1 for m in _PIECE.finditer(text))


def find_too_long(text: str, max_seconds: float) -> list[Detection]:
    """At most one detection: the part of the text after the time limit."""
    said = 0.0
    for start, seconds in _pieces(text):
        said += seconds
        if said > max_seconds + 1e-9:  # floating-point sums of tenths are not exact
            whole = spoken_seconds(text)
            late = detection("verbosity", "too_long", text, start, len(text))
            detail = f"{whole:.0f} s of {max_seconds:g} s: {late.excerpt}"[:80]
            return [Detection("verbosity", "too_long", start, len(text), detail)]
    return []


def _pieces(text: str) -> Iterator[tuple[int, float]]:
    """The start of each spoken piece and its duration in seconds."""
    for match in _PIECE.finditer(text):
        if match["kannada"]:
            yield match.start(), _aksharas(match["kannada"]) / AKSHARAS_PER_SECOND
        else:
            words = _number_words(match["number"]) if match["number"] else 1
            yield match.start(), words / WORDS_PER_SECOND


def _aksharas(word: str) -> int:
    """The number of written syllables; a Kannada digit counts as about two."""
    return len(_AKSHARA.findall(word)) + 2 * len(_KANNADA_DIGIT.findall(word)) or 1


def _number_words(text: str) -> int:
    """Words of a number, a time ("7:30" is two numbers) or a decimal ("3.14" is four words)."""
    whole, separator, rest = (
        re.split(r"([.:])", text, maxsplit=1) if re.search(r"[.:]", text) else (text, "", "")
    )
    digits = whole.replace(",", "")
    words = len(digits) if len(digits) > _LONGEST_NUMBER else spoken_length(int(digits))
    if separator == ":":
        return words + spoken_length(int(rest))
    return words + (1 + len(rest) if rest else 0)
