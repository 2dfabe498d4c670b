"""Detects thoughts that leaked into a reply, with or without their tags: `find_leaks`. Pure.

Evidence that does not depend on wording comes first: a reasoning field although thinking is off, a
special token, or more generated tokens than the visible text accounts for (`hidden_tokens`). Then the
text is searched for tags and for the wording of thoughts (`leak_patterns.py`).

A single decisive pattern is enough. The weights of lighter patterns are summed, each kind at most
twice; they decide if the sum is at least three and there is at least one point per 250 characters,
because thoughts are dense with such wording and long answers are not.

For live traffic and training data, where only a text is known, call `find_leaks(text)`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from gates.detect.detection import Detection, detection
from gates.detect.leak_patterns import DECISIVE_WEIGHT, LeakPattern, candidates, fold, matches
from gates.detect.spans import merged
from gates.detect.tags import tags

_CHARACTERS_PER_POINT: Final = 250
_MOST_PER_KIND: Final = 2  # how many times one kind of light evidence counts

_Match = tuple[LeakPattern, int, int]


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
) -> list[Detection]:
    """Every sign that a thought reached the caller, in the order of parts and positions.

    `thinking`: the request allowed thinking, so the reasoning field may have content. `tokens`: the model's
    special tokens (`tags.added_tokens`). `completion_tokens` (the engine's count) and `called` (names and
    arguments of all calls) serve to find hidden tokens; pass them only if thinking is off. `short`: a short
    answer was expected, so that reaching the token limit is evidence.
    """
    findings = []
    if reasoning.strip() and not thinking:
        findings.append(detection("leak", "reasoning", reasoning, 0, len(reasoning), part="reasoning"))
    if spans := list(tags(content, tokens)):
        findings += [detection("leak", "tag", content, *span) for span in merged(spans)]
    findings += _wording(content)
    if completion_tokens is not None and not thinking:
        unseen = hidden_tokens(content, called, reasoning, completion_tokens)
        if unseen:
            findings.append(Detection("leak", "hidden_tokens", 0, 0, f"{unseen} tokens that are not shown"))
    if short and finish_reason == "length":
        findings.append(
            detection("leak", "cut", content, max(0, len(content) - 40), len(content), decides=False)
        )
    return findings


def hidden_tokens(content: str, called: str, reasoning: str, completion_tokens: int) -> int:
    """The number of tokens beyond what the visible text can have cost; 0 if all are accounted for.

    The estimate is generous: one token for two ASCII letters (English takes one for four, romanised Kannada
    and made-up names one for two), one for every digit, sign and line break, three for every other
    character (a byte-level tokenizer that does not know the script), four for the end of the turn, and
    twelve for what a template writes around calls.
    """
    text = content + called + reasoning
    other = sum(not c.isascii() for c in text)
    letters = sum(c.isascii() and c.isalpha() for c in text)
    signs = sum(c.isascii() and not c.isalpha() and c != " " for c in text)
    most = letters // 2 + signs + 3 * other + 4 + (12 if called else 0)
    return max(0, completion_tokens - most)


def _wording(content: str) -> list[Detection]:
    """Decisive patterns one by one; light ones as one detection, which decides only if they are dense enough."""
    hits = list(_matches(content))
    if not hits:
        return []
    sure = {(start, end): pattern for pattern, start, end in hits if pattern.weight >= DECISIVE_WEIGHT}
    findings = [detection("leak", pattern.kind, content, *span) for span, pattern in sorted(sure.items())]
    light = sorted((hit for hit in hits if hit[0].weight < DECISIVE_WEIGHT), key=lambda hit: hit[1:])
    if light and not findings:
        sum_ = _evidence_weight(light)
        dense = sum_ * _CHARACTERS_PER_POINT >= len(content)
        span = light[0][1], light[-1][2]
        findings.append(
            detection("leak", "monologue", content, *span, decides=sum_ >= DECISIVE_WEIGHT and dense)
        )
    return findings


def _matches(content: str) -> Iterator[_Match]:
    low = fold(content)
    for pattern in candidates(low):
        for span in matches(pattern, low):
            yield pattern, *span


def _evidence_weight(light: Iterable[_Match]) -> int:
    """The weight of light evidence; overlapping matches count once and each kind at most twice."""
    seen: dict[str, int] = {}
    points, behind = 0, -1
    for pattern, start, end in light:
        if start < behind or seen.get(pattern.kind, 0) >= _MOST_PER_KIND:
            continue
        seen[pattern.kind] = seen.get(pattern.kind, 0) + 1
        points, behind = points + pattern.weight, end
    return points
