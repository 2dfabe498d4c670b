"""Checks the script of a reply by the Unicode names of its letters: `letter_counts` and `find_wrong_script`. Pure.

Names and terms may be Latin in every script. A third script is a fault: Chinese is a typical failure of quantized Qwen models.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from gates.detect.detection import Detection, detection

SCRIPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Latn": ("LATIN",), "Knda": ("KANNADA",), "Cyrl": ("CYRILLIC",), "Grek": ("GREEK",), "Arab": ("ARABIC",), "Hebr": ("HEBREW",),
    "Deva": ("DEVANAGARI",), "Beng": ("BENGALI",), "Guru": ("GURMUKHI",), "Gujr": ("GUJARATI",), "Orya": ("ORIYA",), "Taml": ("TAMIL",),
    "Telu": ("TELUGU",), "Mlym": ("MALAYALAM",), "Sinh": ("SINHALA",), "Thai": ("THAI",), "Laoo": ("LAO",), "Khmr": ("KHMER",),
    "Mymr": ("MYANMAR",), "Tibt": ("TIBETAN",), "Geor": ("GEORGIAN",), "Armn": ("ARMENIAN",), "Ethi": ("ETHIOPIC",), "Hans": ("CJK",),
    "Hant": ("CJK",), "Jpan": ("CJK", "HIRAGANA", "KATAKANA"), "Kore": ("HANGUL", "CJK"),
}  # fmt: skip
"""ISO 15924 codes, and how the Unicode names of their letters begin."""

LEAST_LATIN: Final = 0.7  # of the letters of a Latin reply, which may explain a Kannada word
LEAST_OTHER: Final = 0.5  # of the letters of any other reply, in which names and terms may be Latin
MOST_THIRD: Final = 2  # letters of any third script

_KNOWN: Final = frozenset(name for names in SCRIPTS.values() for name in names)
_WIDTHS: Final = ("HALFWIDTH ", "FULLWIDTH ")


@lru_cache(1 << 14)
def _script(character: str) -> str:
    """How the name of a letter's script begins, or "". Vowel signs count as letters; without them words would weigh too little."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    name = unicodedata.name(character, "")
    for width in _WIDTHS:
        name = name.removeprefix(width)
    first = name.replace("-", " ").partition(" ")[0]
    return first if first in _KNOWN else ""


def letter_counts(text: str) -> Counter[str]:
    """The letters of each script, by the beginning of their Unicode names; digits, punctuation and symbols have none."""
    return Counter(filter(None, map(_script, text)))


def find_wrong_script(text: str, script: str) -> list[Detection]:
    """Kinds: wrong_script (too few letters of the expected one), third_script. `script`: one of SCRIPTS."""
    count, own = letter_counts(text), SCRIPTS[script]
    guest = "KANNADA" if script == "Latn" else "LATIN"
    findings = []
    if sum(count[name] for name in own) < (LEAST_LATIN if script == "Latn" else LEAST_OTHER) * count.total():
        findings.append(_found("wrong_script", text, own))
    if sum(count[name] for name in count.keys() - {*own, guest}) > MOST_THIRD:
        findings.append(_found("third_script", text, (*own, guest)))
    return findings


def _found(kind: str, text: str, welcome: tuple[str, ...]) -> Detection:
    """From the first letter that is not welcome to the last."""
    places = [i for i, character in enumerate(text) if _script(character) not in ("", *welcome)]
    return detection("script", kind, text, places[0], places[-1] + 1)
