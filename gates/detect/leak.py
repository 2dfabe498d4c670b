"""Detects thoughts that leaked into a reply, with or without their tags: `find_leaks`. Pure.

Without tags a thought is known by its opening, in which several independent kinds of signs meet (`leak_signs.py`). One kind alone is
never enough: answers have steps, plans, hesitation and users, too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from gates.detect.detection import Detection, detection
from gates.detect.leak_signs import FURTHER, MAIN, MAIN_WORDS, OPENING, Sign, fold
from gates.detect.tags import markers, own_words

_ENOUGH: Final = 3  # points


def find_leaks(
    text: str, *, reasoning: str = "", completion_tokens: int | None = None, called: str = ""
) -> list[Detection]:
    """Every sign that a thought reached the caller although thinking is off. `completion_tokens` (the engine's count) and `called`
    (all calls' names and arguments) serve to find hidden tokens.
    """
    findings = []
    if reasoning.strip():
        findings.append(detection("leak", "reasoning", reasoning, 0, len(reasoning), part="reasoning"))
    tags = sorted((start, end) for marker, start, end in markers(text) if marker.kind == "think")
    findings += [detection("leak", "tag", text, *span) for span in tags]
    findings += _monologue(text)
    if (
        completion_tokens is not None
        and (unseen := hidden_tokens(text, called, reasoning, completion_tokens)) >= LEAST_HIDDEN
    ):
        findings.append(Detection("leak", "hidden_tokens", 0, 0, f"{unseen} tokens that are not shown"))
    return findings


_SPACE: Final = re.compile(" (?![A-Za-z])")
LEAST_HIDDEN: Final = 12
"""Tokens of a hidden thought. Fewer may be a tokenizer's way with odd text: of 4,512 replies of two real models none has more."""


def hidden_tokens(content: str, called: str, reasoning: str, completion_tokens: int) -> int:
    """The number of tokens beyond what the visible text can have cost: a token for two ASCII letters, for a digit or sign and for a
    space before it, three for any other character, four for the end of the turn, twelve for what a template writes around calls.
    """
    text = content + called + reasoning
    other = sum(not c.isascii() for c in text)
    letters = sum(c.isascii() and c.isalpha() for c in text)
    signs = sum(c.isascii() and not c.isalpha() and c != " " for c in text) + len(_SPACE.findall(text))
    most = letters // 2 + signs + 3 * other + 4 + (12 if called else 0)
    return max(0, completion_tokens - most)


def _monologue(text: str) -> list[Detection]:
    """At most one detection: the opening from the first sign to the last."""
    low = fold(own_words(text[:OPENING]))
    if MAIN_WORDS.search(low) is None:
        return []
    found = list(_signs(MAIN, low))
    if found:
        found += _signs(FURTHER, low)
    points: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for weight, start, end, kind in sorted(found, reverse=True):  # words that are two signs count as one
        if all(end <= first or last <= start for first, last in spans):
            spans.append((start, end))
            points.setdefault(kind, weight)  # its heaviest sign
    if sum(points.values()) < _ENOUGH:
        return []
    return [detection("leak", "monologue", text, min(spans)[0], max(end for _, end in spans))]


def _signs(kinds: Mapping[str, tuple[Sign, ...]], low: str) -> Iterator[tuple[int, int, int, str]]:
    """(weight, start, end, kind) of every sign."""
    for kind, signs in kinds.items():
        for sign in signs:
            yield from ((sign.weight, start, end, kind) for start, end in sign.spans(low))
