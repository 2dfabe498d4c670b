"""Finds tokens of a chat template, which must never be spoken. Pure.

There are two sources: the table of markers (`gates.contracts.markers`), and the tokenizer's own added vocabulary
(`added_tokens`). The latter is better if it is known, because a model with new tags leaks those.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gates.contracts.markers import START, Marker, find, is_half

_UNMARKED: Final = re.compile(
    r"""<details\b[^<>\n]{0,80}\btype\s?=\s?["']?(?:reasoning|tool_calls)\b  # Open WebUI's
    | ^analysis(?=[A-Z]) | assistant(?:final|analysis|commentary)(?=[A-Z<])  # Harmony without its tokens
    | </?internal> | <(?:bos|pad|unk)> | ^<s> | \[/?(?:AVAILABLE_TOOLS|SYSTEM_PROMPT)\]
    """,
    re.VERBOSE,
)
"""What the reply parser leaves alone, since answers hold it as well."""
_NEEDED: Final = (*START, "analysis", "assistant")
"""A text without any of these has no tag; most have none, and the patterns take ten times as long."""

_OF_CALLS: Final = re.compile("tool|function|call|invoke|parameter", re.IGNORECASE)


def tags(text: str, tokens: Collection[str] = ()) -> Iterator[tuple[int, int]]:
    """Spans of known tags, and of the given special tokens, in a text."""
    if any(map(text.__contains__, _NEEDED)):
        for marker, start, end in marked(text):
            if marker.kind != "weak_call":  # an element of somebody's XML, without JSON in it
                yield start, end
        for match in _UNMARKED.finditer(text):
            yield match.span()
    for token in tokens:
        at = text.find(token)
        while at >= 0:
            yield at, at + len(token)
            at = text.find(token, at + len(token))


def marked(text: str) -> Iterator[tuple[Marker, int, int]]:
    """Every marker with its span, and a half one at the end; a marker alone in backticks is only spoken of."""
    for marker, start, end in find(text):
        if not (text[start - 1 : start] == text[end : end + 1] == "`"):
            yield marker, start, end
    at = max(map(text.rfind, "<[\u25c1"))
    if at >= 0 and is_half(text[at:]):
        yield Marker("call" if _OF_CALLS.search(text, at) else "think", False, text[at:]), at, len(text)


def added_tokens(tokenizer: Mapping[str, Any]) -> frozenset[str]:
    """The added vocabulary of a `tokenizer.json`, as texts.

    Plain words and white space are left out: some tokenizers add such tokens for compression, and they
    are frequent in prose.
    """
    entries = tokenizer.get("added_tokens", ())
    texts = {entry["content"] for entry in entries if isinstance(entry, Mapping) and "content" in entry}
    return frozenset(text for text in texts if isinstance(text, str) and _is_sign(text))


def _is_sign(text: str) -> bool:
    return len(text) > 2 and not text.isspace() and not text.strip().isalnum()
