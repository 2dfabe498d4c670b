"""Thinking that leaked: `find_leaks`, with and without its tags. Pure.

What is known beside the text is taken first, because it needs no wording: a reasoning field that is
not empty though thinking is off, a special token, and tokens that were paid for and are not to be
seen (`hidden`). The text is then read for tags and for the wording of thoughts (`leak_words.py`).

A single sure pattern decides. Lighter ones are summed, each kind counting at most twice, and decide
when the sum reaches three and there is at least one for every 250 characters: a thought is dense
with them, and a long friendly answer is not.

Live traffic and training data have only a text: `find_leaks(text)`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from gates.detect.finding import Finding, found
from gates.detect.leak_words import SURE, Pattern, candidates, folded, matches
from gates.detect.spans import merged
from gates.detect.tags import tags

_CHARACTERS_PER_POINT: Final = 250
_MOST_PER_KIND: Final = 2  # times that one kind of light evidence is counted

_Hit = tuple[Pattern, int, int]


def find_leaks(
    content: str,
    *,
    reasoning: str = "",
    thinking: bool = False,
    tokens: Collection[str] = (),
    completion_tokens: int | None = None,
    called: str = "",
    finish_reason: str | None = None,
    short: bool = False,
) -> list[Finding]:
    """Every sign that a thought reached the caller, in the order of parts and places.

    `thinking`: the reply was asked to think, so its reasoning field may speak. `tokens`: the
    model's special tokens (`tags.added_tokens`). `completion_tokens` as the engine counted them, and
    `called` the names and arguments of all calls, find hidden tokens; give them only where thinking
    is off. `short`: a short answer was expected, so that running into the limit is evidence.
    """
    findings = []
    if reasoning.strip() and not thinking:
        findings.append(found("leak", "reasoning", reasoning, 0, len(reasoning), part="reasoning"))
    findings += [found("leak", "tag", content, *span) for span in merged(tags(content, tokens))]
    findings += _wording(content)
    if completion_tokens is not None and not thinking:
        unseen = hidden(content, called, reasoning, completion_tokens)
        if unseen:
            findings.append(Finding("leak", "hidden_tokens", 0, 0, f"{unseen} tokens that nobody sees"))
    if short and finish_reason == "length":
        findings.append(found("leak", "cut", content, max(0, len(content) - 40), len(content), decides=False))
    return findings


def hidden(content: str, called: str, reasoning: str, completion_tokens: int) -> int:
    """Tokens beyond the most that the visible text can have cost; 0 when all can be accounted for.

    The most, generously: a token for every two letters of ASCII (English takes one for four, Kannada
    in Latin letters and made-up names one for two), one for every digit, sign and line break, three
    for every other character (a byte-level tokenizer that never saw the script), four for the end of
    a turn, and twelve more for what a template writes around calls.
    """
    text = content + called + reasoning
    other = sum(not c.isascii() for c in text)
    letters = sum(c.isascii() and c.isalpha() for c in text)
    signs = sum(c.isascii() and not c.isalpha() and c != " " for c in text)
    most = letters // 2 + signs + 3 * other + 4 + (12 if called else 0)
    return max(0, completion_tokens - most)


def _wording(content: str) -> list[Finding]:
    """Sure patterns one by one; light ones as one finding, or as evidence that does not decide."""
    hits = list(_hits(content))
    sure = {(start, end): pattern for pattern, start, end in hits if pattern.weight >= SURE}
    findings = [found("leak", pattern.kind, content, *span) for span, pattern in sorted(sure.items())]
    light = sorted((hit for hit in hits if hit[0].weight < SURE), key=lambda hit: hit[1:])
    if light and not findings:
        sum_ = _points(light)
        dense = sum_ * _CHARACTERS_PER_POINT >= len(content)
        span = light[0][1], light[-1][2]
        findings.append(found("leak", "monologue", content, *span, decides=sum_ >= SURE and dense))
    return findings


def _hits(content: str) -> Iterator[_Hit]:
    low = folded(content)
    for pattern in candidates(low):
        for span in matches(pattern, low):
            yield pattern, *span


def _points(light: Iterable[_Hit]) -> int:
    """The weight of light evidence; the same words are counted once, a kind at most twice."""
    seen: dict[str, int] = {}
    points, behind = 0, -1
    for pattern, start, end in light:
        if start < behind or seen.get(pattern.kind, 0) >= _MOST_PER_KIND:
            continue
        seen[pattern.kind] = seen.get(pattern.kind, 0) + 1
        points, behind = points + pattern.weight, end
    return points
