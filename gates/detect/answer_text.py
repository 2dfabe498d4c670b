"""Text in one form for comparison: words, numbers, units, money and dates. Pure.

    "₹1,23,456" -> 123456 rupees; "one hundred degrees Celsius" -> 100 degrees c; "15th of August, 1947" -> @1947-08-15

A text with a date has a second reading with the date in parts, because a question may ask for the year alone.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gates.detect.numbers import NumberMention, numbers
from gates.detect.spans import SpanSet

_WORD: Final = re.compile(
    r"(?:[^\W_]|[\u0300-\u036f\u0900-\u0dff\u200c\u200d])+(?:['’][a-z]+)?|[₹$€£%°]", re.IGNORECASE
)
_POSSESSIVE: Final = re.compile(r"['’]s?$")
_ARTICLES: Final = frozenset(("the", "a", "an"))
_ISO: Final = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")

_UNITS: Final[Mapping[str, str]] = {
    form: unit
    for unit, forms in {
        "km": "kilometre kilometres kilometer kilometers kms", "m": "metre metres meter meters", "cm": "centimetre centimetres centimeter centimeters",
        "kg": "kilogram kilograms kilo kilos kgs", "g": "gram grams gramme grammes", "l": "litre litres liter liters", "c": "celsius centigrade",
        "f": "fahrenheit", "degrees": "degree deg °", "%": "percent", "rupees": "rupee rs inr ₹", "dollars": "dollar usd $",
        "euros": "euro eur €", "pounds": "pound gbp £", "hours": "hour hr hrs h", "minutes": "minute min mins", "seconds": "second sec secs",
        "mr": "mister", "dr": "doctor", "st": "saint", "and": "&",
    }.items()
    for form in forms.split()
}  # fmt: skip
_MONEY: Final = frozenset(("rupees", "dollars", "euros", "pounds"))
_MONTHS: Final[Mapping[str, int]] = {
    form: i
    for i, forms in enumerate(
        ("january jan ಜನವರಿ", "february feb ಫೆಬ್ರವರಿ", "march mar ಮಾರ್ಚ್", "april apr ಏಪ್ರಿಲ್", "may ಮೇ", "june jun ಜೂನ್", "july jul ಜುಲೈ",
         "august aug ಆಗಸ್ಟ್", "september sept sep ಸೆಪ್ಟೆಂಬರ್", "october oct ಅಕ್ಟೋಬರ್", "november nov ನವೆಂಬರ್", "december dec ಡಿಸೆಂಬರ್"), start=1)
    for form in forms.split()
}  # fmt: skip
_LEAST_STEM: Final = 4  # minimum characters of a Kannada stem to which endings may be attached
_KANNADA_SIGNS: Final = frozenset(chr(c) for c in (*range(0x0CBE, 0x0CCE), 0x0C82))


@dataclass(frozen=True, slots=True)
class FoldedWord:
    """A normalized word and its position in the text."""

    text: str
    start: int
    end: int

    def means(self, want: "FoldedWord") -> bool:
        """Whether this is the wanted word: equal, a date with a year where none was asked, or Kannada with an ending."""
        if self.text == want.text:
            return True
        if want.text.startswith("@-"):
            return self.text.startswith("@") and self.text.endswith(want.text[1:])
        stem = want.text.rstrip("".join(_KANNADA_SIGNS))
        return len(stem) >= _LEAST_STEM and _is_kannada(stem) and self.text.startswith(stem)


def readings(text: str) -> tuple[Sequence[FoldedWord], ...]:
    """A text's words with dates in parts and, if there is a date, a second reading with whole dates."""
    words = _money_behind(_folded(text))
    whole = _whole_dates(words)
    return (words,) if whole == words else (words, whole)


def _folded(text: str) -> list[FoldedWord]:
    """Words and numbers in order; ISO dates are split like other dates."""
    text = _ISO.sub(lambda m: f"{m[1]} {m[2]} {m[3]}" if int(m[2]) <= 12 else m[0], text)
    found = numbers(text)
    words = [FoldedWord(_number_text(number), number.start, number.end) for number in found]
    taken = SpanSet((number.start, number.end) for number in found)
    for match in _WORD.finditer(text):
        if not taken.touches(*match.span()):
            folded = _fold(match.group())
            if folded not in _ARTICLES:
                words.append(FoldedWord(folded, *match.span()))
    return sorted(words, key=lambda word: word.start)


def _number_text(number: NumberMention) -> str:
    return f"{number.value:.10g}"


def _fold(word: str) -> str:
    """Lower case, without accents on Latin letters and possessives, with one name per unit."""
    bare = _POSSESSIVE.sub("", word)
    split = unicodedata.normalize("NFKD", bare).casefold() if not _is_kannada(bare) else bare
    folded = "".join(c for c in split if not "\u0300" <= c <= "\u036f")
    return _UNITS.get(folded, folded)


def _is_kannada(text: str) -> bool:
    return bool(text) and "\u0c80" <= text[0] <= "\u0cff"


def _money_behind(words: Sequence[FoldedWord]) -> list[FoldedWord]:
    """Moves a currency sign behind its number, as it is spoken."""
    out = list(words)
    for i in range(len(out) - 1):
        if out[i].text in _MONEY and _is_number(out[i + 1]):
            out[i], out[i + 1] = out[i + 1], out[i]
    return out


def _is_number(word: FoldedWord) -> bool:
    return word.text[:1].isdigit() or (word.text[:1] == "-" and word.text[1:2].isdigit())


def _whole_dates(words: Sequence[FoldedWord]) -> list[FoldedWord]:
    out, i = list[FoldedWord](), 0
    while i < len(words):
        date, taken = _date(words[i : i + 4])
        out.append(FoldedWord(date, words[i].start, words[i + taken - 1].end) if date else words[i])
        i += taken
    return out


def _date(words: Sequence[FoldedWord]) -> tuple[str, int]:
    """A date at the start of these words and the number of words it takes; "" and 1 if there is none."""
    texts = [word.text for word in words if word.text != "of"]
    skipped = sum(word.text == "of" for word in words[:2])  # the 15th of August
    day, month, year = _parts(texts)
    if not month or not (day or year):
        return "", 1
    text = "@" + (f"{year:04d}" if year else "") + f"-{month:02d}" + (f"-{day:02d}" if day else "")
    return text, sum(map(bool, (day, month, year))) + skipped


def _parts(texts: Sequence[str]) -> tuple[int, int, int]:
    """(day, month, year), 0 if absent: 15 August 1947, August 15 1947, August 1947, 1947 8 15."""
    first, second, third = (*texts, "", "", "")[:3]
    if first in _MONTHS:
        day = _day(second)
        return day, _MONTHS[first], _year(third) if day else _year(second)
    if second in _MONTHS:
        return _day(first), _MONTHS[second] if _day(first) else 0, _year(third)
    if _year(first) and _day(third) and second.isdigit() and 1 <= int(second) <= 12:
        return _day(third), int(second), _year(first)
    return 0, 0, 0


def _day(text: str) -> int:
    return int(text) if text.isdigit() and 1 <= int(text) <= 31 else 0


def _year(text: str) -> int:
    return int(text) if text.isdigit() and 1000 <= int(text) <= 2999 else 0
