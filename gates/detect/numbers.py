"""Finds numbers as they are written and spoken in English and Kannada: `numbers`. Pure.

Every word has a kind, and one pattern over the kinds tells which words make a number: "two and a half lakh" is u&aFs.
Indian and Western grouping, decimals, signs, ordinals, fractions, digits of every script, Chinese numerals of two characters and more; words up to
crores and trillions. Numbers in names (COVID-19, B12) are ignored. A rule generates the Kannada compounds.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


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


_WORDS: Final[dict[str, tuple[str, float]]] = {
    **{word: ("z" if i == 0 else "u" if i < 10 else "t", float(i)) for all_ in (_ENGLISH, _KANNADA) for i, word in enumerate(all_)},
    **{word: ("T", 20.0 + 10 * i) for i, word in enumerate(_ENGLISH_TENS)},
    "fourty": ("T", 40.0),
    **{word: ("c" if value % 10 else "T", value) for word, value in _kannada_compounds()},
    **dict.fromkeys(_words("hundred ನೂರು ನೂರ ನೂರಾ"), ("h", 100.0)),
    **{form: ("H", 100.0 * i) for i, word in enumerate(_KANNADA_HUNDREDS, start=2) for form in (word, word.removesuffix("ು"))},
    "dozen": ("s", 12.0),
    **dict.fromkeys(_words("thousand ಸಾವಿರ ಸಾವಿರದ"), ("s", 1e3)),
    **dict.fromkeys(_words("lakh lakhs lac ಲಕ್ಷ ಲಕ್ಷದ"), ("s", 1e5)),
    **dict.fromkeys(_words("crore crores ಕೋಟಿ ಕೋಟಿಯ"), ("s", 1e7)),
    "million": ("s", 1e6), "billion": ("s", 1e9), "trillion": ("s", 1e12),
    **{word: ("o", float(i)) for i, word in enumerate(_words("first second third fourth fifth sixth seventh eighth ninth"), start=1)},
    "half": ("F", 1 / 2), "halves": ("f", 1 / 2), "third": ("r", 1 / 3), "thirds": ("f", 1 / 3), "quarter": ("q", 1 / 4), "quarters": ("f", 1 / 4),
    "fourths": ("f", 1 / 4), "fifths": ("f", 1 / 5), "sixths": ("f", 1 / 6), "eighths": ("f", 1 / 8), "tenths": ("f", 1 / 10),
    "a": ("a", 0.0), "an": ("a", 0.0), "and": ("&", 0.0), "point": (".", 0.0),
    "minus": ("-", 0.0), "negative": ("-", 0.0), "ಮೈನಸ್": ("-", 0.0),
}  # fmt: skip
"""The kind and the value of each word: zero, unit, teen, Tens, compound of tens and unit, hundred, several Hundreds, scale, ordinal,
fraction (Half, quarter and third apart); digits are D, and any other word is a blank. An ordinal alone says no number ("wait a second").
"""

_BELOW: Final = "(?:T[uor]?|[utzc])"
_PART: Final = (
    rf"(?:(?:D|{_BELOW})?h(?:&?{_BELOW})?|H(?:&?{_BELOW})?|(?:Tu?|[tc])(?:T[uor]?|[tc])|{_BELOW}|D|F(?:a(?=s))?|aq)"
    r"[fFqr]?(?:&a[fFqr])?(?:\.[zu]+)?"
)
"""The words that a scale (thousand, lakh) multiplies. Their third form is a year: nineteen forty seven."""
_NUMBER: Final = re.compile(rf"(?:a(?=[hHs]))?(?:(?:{_PART})?s+(?:&(?=[utTzc]))?)*(?:{_PART})?")


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


class NumberMention(NamedTuple):
    """A number and its position in the text."""

    value: float
    start: int
    end: int


class _Token(NamedTuple):
    kind: str
    value: float
    start: int
    end: int


def numbers(text: str) -> list[NumberMention]:
    found = list[NumberMention]()
    for tokens in _joined(text):
        kinds, last = "".join(token.kind for token in tokens), -1
        for match in filter(re.Match.group, _NUMBER.finditer(kinds)):
            first, end = match.span()
            start = tokens[first].start
            is_minus = kinds[first - 1 : first] == "-" and last != first - 1
            is_minus |= kinds[first] == "D" and bool(_SIGN_BEFORE.search(text[max(0, start - 4) : start]))
            value = _value(tokens[first:end])
            found.append(NumberMention(-value if is_minus else value, start, tokens[end - 1].end))
            last = end
    return found


def _joined(text: str) -> Iterator[list[_Token]]:
    """The tokens between which stands what may stand between the words of a number."""
    run = list[_Token]()
    for token in _tokens(_DIGIT.sub(lambda m: str(unicodedata.decimal(m[0], m[0])), text)):
        if run and text[run[-1].end : token.start] not in _JOINS:
            yield run
            run = []
        run.append(token)
    yield run


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match["word"]:
            yield _Token(*_WORDS.get(match["word"].lower(), (" ", 0.0)), *match.span())
        elif match["han"]:
            yield _Token("D", _han(match["han"]), *match.span())
        else:
            value = float(match["digits"].replace(",", ""))
            yield _Token("D", value * (1000.0 if match["behind"] == "k" else 1.0), *match.span())


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


def _value(tokens: Sequence[_Token]) -> float:
    """What words say that `_NUMBER` has matched."""
    total, part, least, decimals = 0.0, 0.0, float("inf"), 0.0
    before = ""  # the kinds that were read
    for kind, value, *_ in tokens:
        if decimals and kind in "zu":
            part, decimals = part + value * decimals, decimals / 10
        elif kind == "s":
            total = (total + part) * value if value > least else total + (part or 1.0) * value
            part, least = 0.0, value
        elif kind == "h":
            part = (part or 1.0) * 100
        elif kind in "fFqr" and not before.endswith("T"):
            part = part * value if before and before[-1] not in "a&" else part + value
        elif kind in "tTc" and 10 <= part < 100:
            part = part * 100 + value  # a year
        elif kind in "DuztTcHor":
            part += round(1 / value) if kind == "r" else value
        decimals = 0.1 if kind == "." else decimals
        before += kind
    return total + part
