"""The script of a reply: `shares` and `find_wrong_script`, by code points alone. Pure.

A reply in Kannada is one whose letters are mostly Kannada's (U+0C80 to U+0CFF); names and terms in
Latin letters may stand in it, and digits of any kind count for nobody. A third script is a fault in
either: Chinese in an English answer is how Qwen's quantized models come apart. Kannada that is
written in Latin letters cannot be told by its script; a short list of words names it for a person.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from gates.detect.finding import Finding, found

Script = Literal["Latn", "Knda"]

LEAST_LATIN: Final = 0.7  # of the letters of an English reply; a Kannada word may be explained in it
LEAST_KANNADA: Final = 0.5  # of the letters of a Kannada reply; names and terms may be Latin
MOST_OTHER: Final = 2  # letters of any third script

_LATIN: Final = re.compile("[A-Za-zªºÀ-ÖØ-öø-\u024f\u1e00-\u1eff]")
# Vowel signs and the virama are parts of letters here: without them a word of two letters weighs one.
_KANNADA: Final = re.compile("[\u0c80-\u0ce3\u0cf1-\u0cf3]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_RUN: Final = {
    "Latn": re.compile(r"[A-Za-zÀ-\u024f][A-Za-zÀ-\u024f'’\s,.-]*"),
    "Knda": re.compile("[\u0c80-\u0cff][\u0c80-\u0cff\u200c\u200d\\s,.-]*"),
}
_ROMANISED: Final = re.compile(
    r"\b(?:nanage|nimage|nanna|nimma|naanu|nanu|neevu|neenu|avaru|idhe|ide\b|illa|beku|beda|gottu|gothu|gottilla|hegide|hegiddira|"
    r"hegiddiya|yenu|enu|yaake|yelli|elli|yavaga|maadi|madi|madtini|maadthini|helli|heli|banni|hogi|oota|chennagi|"
    r"chennagide|chennagiddini|dhanyavada|dhanyavadagalu|namaskara|ondu|eradu|mooru|nale|naale|ivattu|eega)\b",
    re.IGNORECASE,
)
_LEAST_ROMANISED: Final = 2


@dataclass(frozen=True, slots=True)
class Shares:
    """Letters of each script; `other` is any third one."""

    latin: int
    kannada: int
    other: int

    @property
    def letters(self) -> int:
        """All of them."""
        return self.latin + self.kannada + self.other


def shares(text: str) -> Shares:
    """Letters by script. Digits, punctuation and signs count for none."""
    latin, kannada = len(_LATIN.findall(text)), len(_KANNADA.findall(text))
    if text.isascii():
        return Shares(latin, 0, 0)
    letters = [c for c in _LETTER.findall(text) if not (_LATIN.match(c) or _KANNADA.match(c))]
    return Shares(latin, kannada, len(letters))


def find_wrong_script(text: str, script: Script) -> list[Finding]:
    """`wrong_script` where too few letters are of the expected one, `third_script` where another
    is in it, `romanised` (evidence only) where expected Kannada is written in Latin letters. A text
    without letters has no script and no fault."""
    count = shares(text)
    if not count.letters:
        return []
    findings = []
    share = (count.latin if script == "Latn" else count.kannada) / count.letters
    if share < (LEAST_LATIN if script == "Latn" else LEAST_KANNADA):
        run = _RUN["Knda" if script == "Latn" else "Latn"].search(text)
        span = run.span() if run else (0, len(text))
        findings.append(found("script", "wrong_script", text, *span))
        if script == "Knda" and len(_ROMANISED.findall(text)) >= _LEAST_ROMANISED:
            findings.append(found("script", "romanised", text, *span, decides=False))
    if count.other > MOST_OTHER:
        start, end = _third(text)
        findings.append(found("script", "third_script", text, start, end))
    return findings


def _third(text: str) -> tuple[int, int]:
    """The first and the last letter of a third script."""
    places = [m.start() for m in _LETTER.finditer(text) if not (_LATIN.match(m[0]) or _KANNADA.match(m[0]))]
    return places[0], places[-1] + 1
