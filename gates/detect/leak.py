"""Detects thoughts that leaked into a reply, with or without their tags: `find_leaks`. Pure.

A decisive pattern is enough. The weights of lighter ones are summed, each kind at most twice, and decide at three and one
point per 250 characters: thoughts are dense with such wording, long answers are not.
"""

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
    text: str,
    *,
    reasoning: str = "",
    tokens: Collection[str] = (),
    completion_tokens: int | None = None,
    called: str = "",
) -> list[Detection]:
    """Every sign that a thought reached the caller although thinking is off. `tokens`: the model's special tokens.
    `completion_tokens` (the engine's count) and `called` (all calls' names and arguments) serve to find hidden tokens.
    """
    findings = []
    if reasoning.strip():
        findings.append(detection("leak", "reasoning", reasoning, 0, len(reasoning), part="reasoning"))
    if spans := list(tags(text, tokens)):
        findings += [detection("leak", "tag", text, *span) for span in merged(spans)]
    findings += _wording(text)
    if completion_tokens is not None and (
        unseen := hidden_tokens(text, called, reasoning, completion_tokens)
    ):
        findings.append(Detection("leak", "hidden_tokens", 0, 0, f"{unseen} tokens that are not shown"))
    return findings


def hidden_tokens(content: str, called: str, reasoning: str, completion_tokens: int) -> int:
    """The number of tokens beyond what the visible text can have cost: a token for two ASCII letters, for a digit or sign, three
    for any other character, four for the end of the turn, twelve for what a template writes around calls.
    """
    text = content + called + reasoning
    other = sum(not c.isascii() for c in text)
    letters = sum(c.isascii() and c.isalpha() for c in text)
    signs = sum(c.isascii() and not c.isalpha() and c != " " for c in text)
    most = letters // 2 + signs + 3 * other + 4 + (12 if called else 0)
    return max(0, completion_tokens - most)


def _wording(content: str) -> list[Detection]:
    """Decisive patterns one by one; light ones as one detection, if they are dense enough."""
    hits = list(_matches(content))
    sure = {(start, end): pattern for pattern, start, end in hits if pattern.weight >= DECISIVE_WEIGHT}
    if sure or not hits:
        return [detection("leak", pattern.kind, content, *span) for span, pattern in sorted(sure.items())]
    light = sorted(hits, key=lambda hit: hit[1:])
    sum_ = _evidence_weight(light)
    if sum_ < DECISIVE_WEIGHT or sum_ * _CHARACTERS_PER_POINT < len(content):
        return []
    return [detection("leak", "monologue", content, light[0][1], light[-1][2])]


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
