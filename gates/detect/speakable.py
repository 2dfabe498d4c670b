"""Checks whether a speech synthesizer can say a reply well, and in time: `find_unspeakable`, `find_too_long`. Pure.

Unspeakable is what `find_markdown` finds, and what sounds wrong: addresses, emoticons, code, enumerations, long sentences, digits and
openings. English takes 2.5 words a second, digits as the words that say them. Kannada is counted by aksharas at five a second: a
convention by Coupé et al. 2019 (Science Advances 5:eaaw2594), whose 17 languages do not include it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gates.detect.detection import Detection, SpanSet, detection
from gates.detect.markdown import find_markdown
from gates.detect.numbers import spoken_length

WORDS_PER_SECOND: Final = 2.5
AKSHARAS_PER_SECOND: Final = 5.0

_PIECE: Final = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{2,3})+(?:\.\d+)?|\d+(?:[.:]\d+)?)|(?P<kannada>[\u0c80-\u0cff\u200c\u200d]+)"
    r"|(?P<word>[^\W\d_]+(?:['’-][^\W\d_]+)*)|(?P<sign>[₹$€£%°&+=@])"
)
# A consonant or vowel begins an akshara unless a virama joins it to the previous one.
_AKSHARA: Final = re.compile(r"(?<!\u0ccd)(?<!\u0ccd\u200d)[\u0c85-\u0cb9\u0cde\u0ce0\u0ce1]")
_KANNADA_DIGIT: Final = re.compile(r"[\u0ce6-\u0cef]")
_LONGEST_NUMBER: Final = 9  # digits; a voice reads a longer number digit by digit


def spoken_seconds(text: str) -> float:
    """Seconds needed to say a text, without pauses."""
    return sum(seconds for _, seconds in _pieces(text))


def find_too_long(text: str, max_seconds: float) -> list[Detection]:
    """At most one detection: the part of the text after the time limit."""
    said = 0.0
    for start, seconds in _pieces(text):
        said += seconds
        if said > max_seconds + 1e-9:  # floating-point sums of tenths are not exact
            whole = spoken_seconds(text)
            late = detection("verbosity", "too_long", text, start, len(text))
            detail = f"{whole:.0f} s of {max_seconds:g} s: {late.excerpt}"[:80]
            return [Detection("verbosity", "too_long", start, len(text), detail)]
    return []


def _pieces(text: str) -> Iterator[tuple[int, float]]:
    """The start of each spoken piece and its duration in seconds."""
    for match in _PIECE.finditer(text):
        if match["kannada"]:
            yield match.start(), _aksharas(match["kannada"]) / AKSHARAS_PER_SECOND
        else:
            words = _number_words(match["number"]) if match["number"] else 1
            yield match.start(), words / WORDS_PER_SECOND


def _aksharas(word: str) -> int:
    """The number of written syllables; a Kannada digit counts as about two."""
    return len(_AKSHARA.findall(word)) + 2 * len(_KANNADA_DIGIT.findall(word)) or 1


def _number_words(text: str) -> int:
    """Words of a number, a time ("7:30" is two numbers) or a decimal ("3.14" is four words)."""
    whole, separator, rest = (*re.split(r"([.:])", text, maxsplit=1), "", "")[:3]
    digits = whole.replace(",", "")
    words = len(digits) if len(digits) > _LONGEST_NUMBER else spoken_length(int(digits))
    if separator == ":":
        return words + spoken_length(int(rest))
    return words + (1 + len(rest) if rest else 0)


_MOST_WORDS: Final = 30  # of a sentence
_MOST_CHARACTERS: Final = 160  # of the first sentence, for which a listener waits
# Sentences end at their marks; a point between digits does not end one.
_SENTENCE: Final = re.compile(r"(?:[^.!?।\n]|(?<=\d)\.(?=\d)|\.(?=[^\s\"'”’)\]]))+[.!?।…\"'”’)\]]*")
_END: Final = re.compile(r"[.!?।…:;][\"'”’)\]]*\s*$")
_SIGNS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("url", r"(?i:(?<![a-z0-9.-])(?:[a-z0-9-]{1,63}\.){1,9}(?:com|org|net|in|io|dev|co|gov|edu|info|app|ai)\b(?:/\S*)?)"),
        # An 8 needs its nose: 83, 8) and 8/10 are numbers.
        ("emoticon", r"(?:^|(?<=\s))(?:[:;]['’]?-?[)(DPpO/\\|*3]|=-?[)(DPp]|8-[)(DPp]|<3|\(:|xD|XD|\^_\^|¯\\_)(?=\s|$|[.,!?])"),
        ("enumeration", r"(?:^|\s)\(?1[.)]\s+\S(?s:.{0,200}?)\s\(?2[.)]\s+\S"),
        ("code", r"\b\w+\([^()\n]*\)\s*[;{]|\b(?:def|class|import|return|const|var|let|function)\s+\w+\s*[(={:;]|=>|==|!=|&&|\|\||\{\s*\"|[;{]\s*\n|</\w+>"),
        ("date", r"\b\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}\S*)?\b|\b\d{1,2}/\d{1,2}/\d{2,4}\b"),
        ("abbreviation", r"(?i:\b(?:e\.g\.|i\.e\.|etc\b|approx\.|w/o?\b))"),
        ("phone", r"(?<!\w)\+?\d[\d ()-]{7,}\d(?!\w)"),
        ("digits", r"(?<![\w.,])\d{5,}(?![\w,]*\d)"),  # in a row without grouping; 1947 is a year, 20482 is not
        ("digits", r"(?<![\w.,])(?=[\d,]*\d{3})(?!(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d{2})*,\d{3})(?![\w,]))\d+(?:,\d+)+(?![\w,])"),  # grouped oddly
    )
)  # fmt: skip


def find_unspeakable(text: str) -> list[Detection]:
    """Everything that cannot be spoken well, in order: the kinds of `find_markdown`, those of `_SIGNS` and `_lengths`, and truncated."""
    findings = [replace(finding, detector="speakable") for finding in find_markdown(text)]
    for kind, pattern in _SIGNS:
        taken = SpanSet((finding.start, finding.end) for finding in findings)
        spans = (match.span() for match in pattern.finditer(text))
        findings += [detection("speakable", kind, text, *span) for span in spans if not taken.touches(*span)]
    taken = SpanSet((finding.start, finding.end) for finding in findings)
    findings += [
        detection("speakable", kind, text, *span) for kind, *span in _lengths(text) if not taken.holds(*span)
    ]
    if text.strip() and not _END.search(text):
        findings.append(detection("speakable", "truncated", text, max(0, len(text.rstrip()) - 40), len(text)))
    return sorted(findings, key=lambda finding: (finding.start, finding.end))


def _lengths(text: str) -> Iterator[tuple[str, int, int]]:
    for i, match in enumerate(_SENTENCE.finditer(text)):
        start = match.start() + len(match.group()) - len(match.group().lstrip())
        words = sum(_number_words(m["number"]) if m["number"] else 1 for m in _PIECE.finditer(match.group()))
        if words > _MOST_WORDS:
            yield "long_sentence", start, match.end()
        if i == 0 and match.end() - start > _MOST_CHARACTERS:
            yield "long_opening", start, match.end()
