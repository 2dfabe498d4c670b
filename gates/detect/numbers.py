"""Finds numbers as they are written and spoken in English and Kannada: `numbers`. Pure.

Indian and Western grouping, decimals, signs, ordinals, fractions, digits of every script, Chinese numerals of two characters and more; words up to
crores and trillions; "2.5 lakh". Numbers in names (COVID-19, B12) are ignored. A rule generates the Kannada compounds.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
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
# Stems without their last vowel sign: ಇಪ್ಪತ್ತು is twenty, ಇಪ್ಪತ್ತೆರಡು twenty-two.
_KANNADA_TENS: Final = _words("ಇಪ್ಪತ್ತ ಮೂವತ್ತ ನಲವತ್ತ ಐವತ್ತ ಅರವತ್ತ ಎಪ್ಪತ್ತ ಎಂಬತ್ತ ತೊಂಬತ್ತ")
# How units are attached: their first vowel becomes a sign on the stem; ಮೂರು and ನಾಲ್ಕು are appended whole.
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
                # A virama joins to one consonant, so the second of the stem's doubled last consonants is dropped.
                yield (stem[:-2] if ending[0] == "್" else stem) + ending, ten * 10.0 + unit


SMALL: Final[dict[str, float]] = {
    **{word: float(i) for i, word in enumerate(_ENGLISH)},
    **{word: 20.0 + 10 * i for i, word in enumerate(_ENGLISH_TENS)},
    "fourty": 40.0,
    **{word: float(i) for i, word in enumerate(_KANNADA)},
    **dict(_kannada_compounds()),
}
"""Words for numbers below a hundred."""

HUNDREDS: Final[dict[str, float]] = {
    "hundred": 100.0, "ನೂರು": 100.0, "ನೂರ": 100.0, "ನೂರಾ": 100.0,
    **{word: 100.0 * i for i, word in enumerate(_KANNADA_HUNDREDS, start=2)},
    **{word.removesuffix("ು"): 100.0 * i for i, word in enumerate(_KANNADA_HUNDREDS, start=2)},
}  # fmt: skip
"""A hundred, and the Kannada words for two to nine hundred, alone and before further words."""

SCALES: Final[dict[str, float]] = {
    "dozen": 12.0, "thousand": 1e3, "lakh": 1e5, "lakhs": 1e5, "lac": 1e5, "crore": 1e7, "crores": 1e7, "million": 1e6,
    "billion": 1e9, "trillion": 1e12, "ಸಾವಿರ": 1e3, "ಸಾವಿರದ": 1e3, "ಲಕ್ಷ": 1e5, "ಲಕ್ಷದ": 1e5, "ಕೋಟಿ": 1e7, "ಕೋಟಿಯ": 1e7,
}  # fmt: skip
"""Words that multiply what was said before them."""

FRACTIONS: Final[dict[str, float]] = {
    "half": 1 / 2, "halves": 1 / 2, "third": 1 / 3, "thirds": 1 / 3, "quarter": 1 / 4, "quarters": 1 / 4, "fourths": 1 / 4,
    "fifths": 1 / 5, "sixths": 1 / 6, "eighths": 1 / 8, "tenths": 1 / 10,
}  # fmt: skip
"""Words that divide what was said before them."""

ORDINALS: Final = dict(
    zip(_words("first second third fourth fifth sixth seventh eighth ninth"), range(1, 10), strict=True)
)
"""The last words of twenty-first to ninety-ninth; alone they say nothing about a number ("wait a second")."""

MINUS: Final = frozenset(("minus", "negative", "ಮೈನಸ್"))


def spoken_length(value: int) -> int:
    """Words that an Indian English voice needs for an integer: nine for 123456 ("one lakh twenty three thousand …")."""
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


_DIGIT: Final = re.compile(r"[^\W0-9A-Za-z_]")
_GROUPED: Final = r"\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})*,\d{3}"
_TOKEN: Final = re.compile(
    rf"(?<![\w.])(?<![^\W\d_]-)(?P<digits>(?:{_GROUPED}|\d+)(?:\.\d+)?)(?P<behind>(?:st|nd|rd|th)\b|k\b|(?=[^\W\d_]|\b))"
    r"|(?P<han>[〇零一二三四五六七八九十百千万萬億亿]{2,})|(?P<word>[A-Za-z]+|[\u0c80-\u0cff\u200c\u200d]+)"
)
_JOINS: Final = frozenset((" ", "-", "\u00a0", " - ", "‑"))  # what may stand between the words of a number
_SIGN_BEFORE: Final = re.compile(r"(?:^|[\s(:=])[-−][₹$€£]?\Z|[₹$€£][-−]\Z")


@dataclass(frozen=True, slots=True)
class NumberMention:
    """A number and its position in the text."""

    value: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Token:
    text: str  # a word in lower case, or digits
    start: int
    end: int
    value: float | None = None  # of digits


def numbers(text: str) -> list[NumberMention]:
    tokens = list(_tokens(_DIGIT.sub(lambda m: str(unicodedata.decimal(m[0], m[0])), text)))
    found, i = list[NumberMention](), 0
    while i < len(tokens):
        reader = _NumberParser(text)
        j = reader.read(tokens, i)
        if reader.value is None:
            i += 1
            continue
        start, end = tokens[i].start, tokens[j - 1].end
        sign = -1 if _is_negative(text, tokens, i, found) else 1
        found.append(NumberMention(sign * reader.value, start, end))
        i = j
    return found


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match["digits"]:
            value = float(match["digits"].replace(",", ""))
            thousands = 1000.0 if match["behind"] == "k" else 1.0
            yield _Token(match["digits"], *match.span(), value * thousands)
        elif match["han"]:
            yield _Token(match["han"], *match.span(), _han(match["han"]))
        else:
            yield _Token(match["word"].lower(), *match.span())


def _han(numeral: str) -> float:
    total = section = digit = 0.0
    for value in map(unicodedata.numeric, numeral):
        if value < 10:
            digit = value
        elif value < 10_000:
            section, digit = section + (digit or 1) * value, 0.0
        else:
            total, section, digit = total + (section + digit or 1) * value, 0.0, 0.0
    return total + section + digit


def _is_negative(text: str, tokens: list[_Token], i: int, before: list[NumberMention]) -> bool:
    """Whether there is a minus before the number that does not stand between two numbers."""
    token = tokens[i]
    if token.value is not None and _SIGN_BEFORE.search(text[max(0, token.start - 4) : token.start]):
        return True
    if i and tokens[i - 1].text in MINUS and text[tokens[i - 1].end : token.start] in _JOINS:
        behind = before[-1].end if before else -1
        return not (behind >= 0 and text[behind : tokens[i - 1].start].strip() == "")
    return False


class _NumberParser:
    """Consumes the tokens of one number as long as they belong together; `value` is None if none did."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._total = 0.0  # of finished scales
        self._current: float | None = None
        self._last = ""  # kind of the last part: digits, small, tens, hundred, scale
        self._year = False
        self._least_scale = float("inf")

    @property
    def value(self) -> float | None:
        if not self._last:
            return None
        return self._total + (self._current or 0.0)

    def read(self, tokens: list[_Token], i: int) -> int:
        """The index after the last token of the number that starts at `i`."""
        j = i
        while j < len(tokens) and (j == i or self._text[tokens[j - 1].end : tokens[j].start] in _JOINS):
            taken = self._take(tokens, j)
            if not taken:
                break
            j += taken
        return j

    def _take(self, tokens: list[_Token], j: int) -> int:
        """The number of tokens consumed here; 0 if this token begins something else."""
        token = tokens[j]
        if token.value is not None:
            return self._digits(token.value)
        if token.text in ORDINALS and self._last == "tens":
            return self._small(ORDINALS[token.text])
        if token.text in SMALL:
            return self._small(SMALL[token.text])
        if token.text in HUNDREDS:
            return self._hundred(HUNDREDS[token.text])
        if token.text in SCALES:
            return self._scale(SCALES[token.text])
        return self._joined(tokens, j)

    def _digits(self, value: float) -> int:
        if self._last not in ("", "scale") or (self._last == "scale" and value >= self._least_scale):
            return 0
        self._current, self._last = value, "digits"
        return 1

    def _small(self, value: float) -> int:
        tens = value >= 20 and value % 10 == 0
        if self._current is None or self._last == "scale":
            self._current = value
        elif (self._last == "tens" and 0 < value < 10) or self._last == "hundred":
            self._current += value
        elif 10 <= self._current <= 99 and 10 <= value <= 99 and not (self._total or self._year):
            self._current, self._year = self._current * 100 + value, True
        else:
            return 0
        self._last = "tens" if tens else "small"
        return 1

    def _hundred(self, value: float) -> int:
        """`value` is 100, or 200 to 900 for a Kannada word."""
        if self._current is None or self._last == "scale":
            self._current = value
        elif value == 100 and self._current < 100 and self._last in ("small", "tens", "digits"):
            self._current *= value
        else:
            return 0
        self._last = "hundred"
        return 1

    def _scale(self, value: float) -> int:
        if self._last == "" and value < 1000:  # a dozen stands alone, and "thousand" alone is 1,000
            self._total, self._last = value, "scale"
            return 1
        if self._last == "scale" and value <= self._least_scale:
            return 0
        if value > self._least_scale:  # one lakh crore
            self._total, self._current = (self._total + (self._current or 0.0)) * value, None
        else:
            self._total += (1.0 if self._current is None else self._current) * value
            self._current = None
        self._least_scale, self._last = value, "scale"
        return 1

    def _joined(self, tokens: list[_Token], j: int) -> int:
        """and, point, a half: words that belong to a number only together with the next words."""
        word, after = tokens[j].text, [t.text for t in tokens[j + 1 : j + 3]]
        if word == "half" and not self._last:
            self._current, self._last = 0.5, "small"
            return 2 if after[:1] == ["a"] and after[1:] and after[1] in SCALES else 1  # half a million
        if word in FRACTIONS and self._last in ("small", "digits"):
            self._current, self._last = (self._current or 0.0) * FRACTIONS[word], "fraction"
            return 1
        if word in ("a", "an") and not self._last:
            if after[:1] == ["quarter"]:
                self._current, self._last = FRACTIONS["quarter"], "fraction"
                return 2
            return 1 if after[:1] and (after[0] in HUNDREDS or after[0] in SCALES) else 0
        if word == "and" and self._last:
            if after[:1] == ["a"] and after[1:] and after[1] in FRACTIONS:
                self._current = (self._current or 0.0) + FRACTIONS[after[1]]
                self._last = "small"
                return 3
            return 1 if self._last in ("hundred", "scale") and after[:1] and after[0] in SMALL else 0
        if word == "point" and self._last:
            return self._decimals(tokens, j + 1)
        return 0

    def _decimals(self, tokens: list[_Token], first: int) -> int:
        digits = ""
        for token in tokens[first:]:
            if SMALL.get(token.text, 10) >= 10:
                break
            digits += str(int(SMALL[token.text]))
        if not digits:
            return 0
        self._current = (self._current or 0.0) + float(f"0.{digits}")
        self._last = "small"
        return 1 + len(digits)
