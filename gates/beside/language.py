"""Which language a text is in: by its script, or, where many share one, by the commonest words. Pure.

Enough to check that a reply is in the language that was asked for; it cannot tell close relatives apart that share a script
and are not listed (Hindi, Marathi and Nepali count as one another).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SCRIPTS: Final[Mapping[str, str]] = {
    "hi": "\u0900-\u097f", "mr": "\u0900-\u097f", "ne": "\u0900-\u097f", "bn": "\u0980-\u09ff", "pa": "\u0a00-\u0a7f",
    "gu": "\u0a80-\u0aff", "ta": "\u0b80-\u0bff", "te": "\u0c00-\u0c7f", "kn": "\u0c80-\u0cff", "ml": "\u0d00-\u0d7f",
    "th": "\u0e00-\u0e7f", "ar": "\u0600-\u06ff", "fa": "\u0600-\u06ff", "ur": "\u0600-\u06ff", "he": "\u0590-\u05ff",
    "ru": "\u0400-\u04ff", "bg": "\u0400-\u04ff", "uk": "\u0400-\u04ff", "el": "\u0370-\u03ff", "ko": "\uac00-\ud7af",
    "ja": "\u3040-\u30ff\u4e00-\u9fff", "zh": "\u4e00-\u9fff",
}  # fmt: skip
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to in is that it for was on are with as his they at be this have from or by not but what all you",
        "de": "der die das und ist nicht ein eine zu den mit von sich auf für im dem auch es an als ich sie wir aus bei",
        "fr": "le la les et est un une des du de en que qui dans pour pas sur il elle nous vous avec ce se au plus sont",
        "es": "el la los las y es un una de que en por para con no se su del al lo más como pero sus está son",
        "it": "il lo la gli le e è un una di che in per con non si del della sono al da come anche più nel ha",
        "pt": "o a os as e é um uma de que em por para com não se do da no na mais como mas são ao está",
        "fi": "ja on ei se että hän oli ovat kun niin myös mutta tai ole minä sinä voi olla joka tämä",
        "sw": "na ya wa ni kwa katika la za kuwa hii ambayo cha si kama lakini au yake pia hiyo",
        "vi": "và là của có trong không cho một các được người với những này đã để khi đến như",
        "nl": "de het een en van is dat niet op te in voor met zijn aan er maar om ook als bij",
        "sv": "och att det är en ett som på för av inte med den till har jag vi om men",
        "pl": "i w nie na się z do to że jest jak o po ale za od są oraz",
        "tr": "ve bir bu da için ile çok ne olan gibi daha var değil ama en",
    }.items()
}
_LATIN_WORD: Final = re.compile(r"[^\W\d_]+")
MOST: Final = 0.5
"""Of a text's letters, the share that must be of the language's script."""


def speaks(text: str, language: str) -> bool | None:
    """Whether a text is in a language, given as ISO 639-1; None if the language is not known here.

    In a shared script the language's words must be at least as common in the text as those of any other. A text without
    any known word, such as a name, counts as what it should be.
    """
    if language in _SCRIPTS:
        letters = [c for c in text if c.isalpha() or "\u0900" <= c <= "\u0d7f"]
        inside = sum(bool(re.match(f"[{_SCRIPTS[language]}]", c)) for c in letters)
        return inside > MOST * len(letters)
    if language not in _WORDS:
        return None
    if sum(c.isascii() or c <= "\u024f" or "\u1e00" <= c <= "\u1eff" for c in text) < MOST * len(text):
        return False
    found = [word.casefold() for word in _LATIN_WORD.findall(text)]
    counts = {name: sum(word in words for word in found) for name, words in _WORDS.items()}
    return counts[language] >= max(counts.values())
