"""Checks whether an expected answer is given: `find_wrong_answer`. Pure, without a model as judge.

Texts are compared word by word after normalization, so that "Paris" is not found in "Parisian", nor 42 in 142. "not Paris"
denies it, "40 or 42" leaves it open, "42, no, 41" takes it back; one mention without any of these is right.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gates.detect.answer_text import FoldedWord, readings
from gates.detect.detection import Detection, detection
from gates.detect.numbers import NumberMention, numbers

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


# ------------------------------------------------------------------------------------------ denial


def _denied(text: str, span: Span) -> str | None:
    """Why a mention does not count, or None."""
    start, end = span
    clause = _last_clause(text[max(0, start - 80) : start])
    before = " ".join(clause.split()[-_NEAR:])
    if _NEGATION.search(before) or _DOUBT.search(clause):
        return "denied"
    return "denied" if _DENIED_AFTER.match(text, end) else None


def _last_clause(text: str) -> str:
    parts = _CLAUSE_END.split(text)
    return parts[-1]


def _numbers(text: str, want: float, tolerance: float) -> list[tuple[Span, str | None]]:
    found_ = numbers(text)
    allowed = tolerance + 1e-9 * max(1.0, abs(want))
    right = [abs(number.value - want) <= allowed for number in found_]
    return [
        ((number.start, number.end), _doubtful(text, found_, right, i))
        for i, number in enumerate(found_)
        if right[i]
    ]


def _doubtful(text: str, all_: Sequence[NumberMention], right: Sequence[bool], i: int) -> str | None:
    """Why a right number does not count: it is denied, an alternative to another one, or taken back."""
    number = all_[i]
    for j, pattern, why in (
        (i - 1, _OR, "hedged"),
        (i + 1, _OR, "hedged"),
        (i + 1, _TAKEN_BACK, "retracted"),
    ):
        if 0 <= j < len(all_) and not right[j]:
            left, after = sorted((number, all_[j]), key=lambda one: one.start)
            if pattern.fullmatch(text, left.end, after.start):
                return why
    return _denied(text, (number.start, number.end))
