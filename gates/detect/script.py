"""Checks the script of a reply by code points: `letter_counts` and `find_wrong_script`. Pure.

Names and terms in Kannada may be Latin. A third script is a fault: Chinese is a typical failure of quantized Qwen models.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, get_args

from gates.detect.detection import Detection, detection

Script = Literal["Latn", "Knda"]
SCRIPTS: Final = get_args(Script)

LEAST_LATIN: Final = 0.7  # of the letters of an English reply, which may explain a Kannada word
LEAST_KANNADA: Final = 0.5  # of the letters of a Kannada reply, in which names and terms may be Latin
MOST_OTHER: Final = 2  # letters of any third script

_LATIN: Final = re.compile("[A-Za-zªºÀ-ÖØ-öø-\u024f\u1e00-\u1eff]")
# Vowel signs and the virama count as letters; without them words would weigh too little.
_KANNADA: Final = re.compile("[\u0c80-\u0ce3\u0cf1-\u0cf3]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_RUN: Final = {
    "Latn": re.compile(r"[A-Za-zÀ-\u024f][A-Za-zÀ-\u024f'’\s,.-]*"),
    "Knda": re.compile("[\u0c80-\u0cff][\u0c80-\u0cff\u200c\u200d\\s,.-]*"),
}


class LetterCounts(NamedTuple):
    """The number of letters per script; `other` is any third script."""

    latin: int
    kannada: int
    other: int


def letter_counts(text: str) -> LetterCounts:
    """Count letters by script, without digits, punctuation and symbols."""
    return LetterCounts(len(_LATIN.findall(text)), len(_KANNADA.findall(text)), len(list(_third(text))))


def _third(text: str) -> Iterator[int]:
    """The places of letters of a third script."""
    if not text.isascii():
        yield from (
            m.start() for m in _LETTER.finditer(text) if not (_LATIN.match(m[0]) or _KANNADA.match(m[0]))
        )


def find_wrong_script(text: str, script: Script) -> list[Detection]:
    """Kinds: wrong_script (too few letters of the expected one), third_script."""
    count = letter_counts(text)
    if not sum(count):
        return []
    findings = []
    share = (count.latin if script == "Latn" else count.kannada) / sum(count)
    if share < (LEAST_LATIN if script == "Latn" else LEAST_KANNADA):
        run = _RUN["Knda" if script == "Latn" else "Latn"].search(text)
        span = run.span() if run else (0, len(text))
        findings.append(detection("script", "wrong_script", text, *span))
    if count.other > MOST_OTHER:
        first, *_, last = _third(text)
        findings.append(detection("script", "third_script", text, first, last + 1))
    return findings
