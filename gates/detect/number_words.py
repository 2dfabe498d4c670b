"""The words of numbers in English and Kannada: data, and the Kannada compounds made by rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ENGLISH: Final = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_ENGLISH_TENS: Final = _words("twenty thirty forty fifty sixty seventy eighty ninety")
_KANNADA: Final = _words(
    "ಸೊನ್ನೆ ಒಂದು ಎರಡು ಮೂರು ನಾಲ್ಕು ಐದು ಆರು ಏಳು ಎಂಟು ಒಂಬತ್ತು ಹತ್ತು ಹನ್ನೊಂದು ಹನ್ನೆರಡು ಹದಿಮೂರು ಹದಿನಾಲ್ಕು "
    "ಹದಿನೈದು ಹದಿನಾರು ಹದಿನೇಳು ಹದಿನೆಂಟು ಹತ್ತೊಂಬತ್ತು"
)
# Stems without their last vowel sign: ಇಪ್ಪತ್ತು is twenty, ಇಪ್ಪತ್ತೆರಡು twenty two.
_KANNADA_TENS: Final = _words("ಇಪ್ಪತ್ತ ಮೂವತ್ತ ನಲವತ್ತ ಐವತ್ತ ಅರವತ್ತ ಎಪ್ಪತ್ತ ಎಂಬತ್ತ ತೊಂಬತ್ತ")
# How the units join: their first vowel becomes a sign on the stem; ಮೂರು and ನಾಲ್ಕು follow it whole.
_KANNADA_UNITS: Final = {
    1: ("ೊಂದು",), 2: ("ೆರಡು",), 3: ("ಮೂರು", "ೂರು", "್ಮೂರು"), 4: ("ನಾಲ್ಕು", "್ನಾಲ್ಕು"), 5: ("ೈದು",), 6: ("ಾರು",),
    7: ("ೇಳು",), 8: ("ೆಂಟು",), 9: ("ೊಂಬತ್ತು",),
}  # fmt: skip
_KANNADA_HUNDREDS: Final = _words("ಇನ್ನೂರು ಮುನ್ನೂರು ನಾನೂರು ಐನೂರು ಆರುನೂರು ಏಳುನೂರು ಎಂಟುನೂರು ಒಂಬೈನೂರು")


def _kannada_compounds() -> Iterator[tuple[str, float]]:
    for ten, stem in enumerate(_KANNADA_TENS, start=2):
        yield stem + "ು", ten * 10.0
        for unit, endings in _KANNADA_UNITS.items():
            for ending in endings:
                # A virama joins to one consonant: of the stem's doubled last one, the second goes.
                yield (stem[:-2] if ending[0] == "್" else stem) + ending, ten * 10.0 + unit


SMALL: Final[dict[str, float]] = {
    **{word: float(i) for i, word in enumerate(_ENGLISH)},
    **{word: 20.0 + 10 * i for i, word in enumerate(_ENGLISH_TENS)},
    "fourty": 40.0,
    **{word: float(i) for i, word in enumerate(_KANNADA)},
    **dict(_kannada_compounds()),
}
"""Words below a hundred."""

HUNDREDS: Final[dict[str, float]] = {
    "hundred": 100.0, "ನೂರು": 100.0, "ನೂರ": 100.0, "ನೂರಾ": 100.0,
    **{word: 100.0 * i for i, word in enumerate(_KANNADA_HUNDREDS, start=2)},
    **{word.removesuffix("ು"): 100.0 * i for i, word in enumerate(_KANNADA_HUNDREDS, start=2)},
}  # fmt: skip
"""A hundred, and the Kannada words for two to nine of them, whole and as they stand before more."""

SCALES: Final[dict[str, float]] = {
    "dozen": 12.0, "thousand": 1e3, "lakh": 1e5, "lakhs": 1e5, "lac": 1e5, "crore": 1e7, "crores": 1e7, "million": 1e6,
    "billion": 1e9, "trillion": 1e12, "ಸಾವಿರ": 1e3, "ಸಾವಿರದ": 1e3, "ಲಕ್ಷ": 1e5, "ಲಕ್ಷದ": 1e5, "ಕೋಟಿ": 1e7, "ಕೋಟಿಯ": 1e7,
}  # fmt: skip
"""What multiplies all that was said before it."""

MINUS: Final = frozenset(("minus", "negative", "ಮೈನಸ್"))

_ONES: Final = ("", *_ENGLISH[1:])


def spoken_length(value: int) -> int:
    """Words that an Indian English voice needs for a whole number: 123456 takes nine
    ("one lakh twenty three thousand four hundred fifty six")."""
    value = abs(value)
    if value < 20:
        return 1
    if value < 100:
        return 1 + (value % 10 > 0)
    for scale in (10**7, 10**5, 10**3, 10**2):
        if value >= scale:
            head, rest = divmod(value, scale)
            return spoken_length(head) + 1 + (spoken_length(rest) if rest else 0)
    raise AssertionError(value)
