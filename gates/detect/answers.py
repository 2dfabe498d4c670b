"""Checks whether an expected answer is given: `find_wrong_answer`. Pure, without a model as judge.

Texts are compared word by word in one form, so that "Paris" is not found in "Parisian", nor 42 in 142. "not Paris" denies it,
"40 or 42" leaves it open, "42, no, 41" takes it back; one mention without any of these is right.

    "₹1,23,456" -> 123456 rupees; "one hundred degrees Celsius" -> 100 degrees c; "15th of August, 1947" -> @1947-08-15

A text with a date has a second reading with the date in parts, because a question may ask for the year alone.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.detect.detection import Detection, SpanSet, detection
from gates.detect.numbers import NumberMention, numbers

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
    words = [FoldedWord(f"{number.value:.10g}", number.start, number.end) for number in found]
    taken = SpanSet((number.start, number.end) for number in found)
    for match in _WORD.finditer(text):
        if not taken.touches(*match.span()):
            folded = _fold(match.group())
            if folded not in _ARTICLES:
                words.append(FoldedWord(folded, *match.span()))
    return sorted(words, key=lambda word: word.start)


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
        if out[i].text in _MONEY and re.match(r"-?\d", out[i + 1].text):
            out[i], out[i + 1] = out[i + 1], out[i]
    return out


def _whole_dates(words: Sequence[FoldedWord]) -> list[FoldedWord]:
    out, i = list[FoldedWord](), 0
    while i < len(words):
        date, taken = _date(words[i : i + 4])
        out.append(FoldedWord(date, words[i].start, words[i + taken - 1].end) if date else words[i])
        i += taken
    return out


_PARTS: Final[Mapping[str, Callable[[str], int]]] = {
    "day": lambda text: int(text) if text.isdigit() and 1 <= int(text) <= 31 else 0,
    "month": lambda text: _MONTHS.get(text, 0),
    "month's number": lambda text: int(text) if text.isdigit() and 1 <= int(text) <= 12 else 0,
    "year": lambda text: int(text) if text.isdigit() and 1000 <= int(text) <= 2999 else 0,
}
_ORDERS: Final = (
    ("day", "month", "year"), ("month", "day", "year"), ("year", "month's number", "day"),
    ("day", "month"), ("month", "day"), ("month", "year"),
)  # fmt: skip


def _date(words: Sequence[FoldedWord]) -> tuple[str, int]:
    """A date at the start of these words and the number of words it takes; "" and 1 if there is none."""
    kept = [i for i, word in enumerate(words) if word.text != "of"]  # the 15th of August
    for order in _ORDERS:
        found = {part: _PARTS[part](words[i].text) for part, i in zip(order, kept, strict=False)}
        if len(found) == len(order) and all(found.values()):
            year, day = found.get("year"), found.get("day")
            month = found.get("month") or found["month's number"]
            text = "@" + (f"{year:04d}" if year else "") + f"-{month:02d}" + (f"-{day:02d}" if day else "")
            return text, kept[len(order) - 1] + 1
    return "", 1


_CLAUSE_END: Final = re.compile(r"[.,;:!?—–\n()।]|\bbut\b|\band\b", re.IGNORECASE)
_NEGATION: Final = re.compile(
    r"\b(?:not|never|neither|nor|isn['’]t|wasn['’]t|aren['’]t|cannot|can['’]t|don['’]t|doesn['’]t|didn['’]t|won['’]t)\b(?!\s+(?:only|just|merely|simply))"
    r"|\b(?:rather than|instead of|other than|except|unlike)\b",
    re.IGNORECASE,
)
_DOUBT: Final = re.compile(
    r"\b(?:don['’]t|do not|doesn['’]t)\s+(?:think|believe|know\s+(?:if|whether))\b|\bdoubt\b|\bnot\s+(?:sure|certain|clear)\b|\bwhether\b",
    re.IGNORECASE,
)
_DENIED_AFTER: Final = re.compile(
    r"\s+(?:is|was|are|were|would be)(?:n['’]t|\s+not|\s+never)\b(?!\s+(?:only|just|merely|simply))|\s+(?:would|can|could)(?:n['’]t|\s*not)\s+be\b"
    r"|(?:\s+[\u0c80-\u0cff]+){0,2}\s+ಅಲ್ಲ",
    re.IGNORECASE,
)
_NEAR: Final = 3  # words between a negation and what it denies
_OR: Final = re.compile(
    r"[\s,]*\bor\s+(?:maybe\s+|perhaps\s+|possibly\s+|even\s+)?(?:about\s+)?", re.IGNORECASE
)
_TAKEN_BACK: Final = re.compile(
    r"[\s,.—-]*\b(?:no|wait|sorry|actually|i mean|or rather)\b[^.?!]{0,30}", re.IGNORECASE
)

Span = tuple[int, int]


def find_wrong_answer(text: str, expect: Mapping[str, Any]) -> list[Detection]:
    """At most one detection: missing; denied, hedged or retracted if every mention is so. Of `any` and `number`, one is enough."""
    said = [(span, _denied(text, span)) for answer in expect.get("any", ()) for span in _said(text, answer)]
    if "number" in expect:
        said += _numbers(text, float(expect["number"]), float(expect.get("tolerance", 0.0)))
    if any(why is None for _, why in said):
        return []
    if not said:
        return [Detection("answer", "missing", 0, len(text), _wanted(expect))]
    (start, end), why = max(said)
    return [detection("answer", why or "missing", text, start, end)]


def _wanted(expect: Mapping[str, Any]) -> str:
    wanted = [str(text) for text in expect.get("any", ())]
    wanted += [f"{expect['number']:g}"] if "number" in expect else []
    return f"expected {' or '.join(wanted)}"[:80]


def _said(text: str, answer: str) -> Iterator[Span]:
    """The places where an answer's words stand in sequence, in any reading of the text."""
    for wanted in readings(answer):
        for words in readings(text):
            yield from _in_a_row(words, wanted)


def _in_a_row(words: Sequence[FoldedWord], wanted: Sequence[FoldedWord]) -> Iterator[Span]:
    if not wanted:
        return
    for i in range(len(words) - len(wanted) + 1):
        window = words[i : i + len(wanted)]
        if all(word.means(want) for word, want in zip(window, wanted, strict=True)):
            yield window[0].start, window[-1].end


def _denied(text: str, span: Span) -> str | None:
    """Why a mention does not count, or None."""
    start, end = span
    clause = _CLAUSE_END.split(text[max(0, start - 80) : start])[-1]
    before = " ".join(clause.split()[-_NEAR:])
    if _NEGATION.search(before) or _DOUBT.search(clause):
        return "denied"
    return "denied" if _DENIED_AFTER.match(text, end) else None


def _numbers(text: str, want: float, tolerance: float) -> list[tuple[Span, str | None]]:
    found = numbers(text)
    allowed = tolerance + 1e-9 * max(1.0, abs(want))
    right = [abs(number.value - want) <= allowed for number in found]
    return [
        (
            (number.start, number.end),
            _doubtful(text, found, right, i) or _denied(text, (number.start, number.end)),
        )
        for i, number in enumerate(found)
        if right[i]
    ]


def _doubtful(text: str, found: Sequence[NumberMention], right: Sequence[bool], i: int) -> str | None:
    """Whether a right number is an alternative to a wrong one beside it, or taken back."""
    before = text[found[i - 1].end : found[i].start] if i and not right[i - 1] else ""
    after = text[found[i].end : found[i + 1].start] if i + 1 < len(found) and not right[i + 1] else ""
    if _OR.fullmatch(before) or _OR.fullmatch(after):
        return "hedged"
    return "retracted" if _TAKEN_BACK.fullmatch(after) else None
