"""Prompts and replies for display. A reply may hold control characters, or marks that make one text look like another. Pure."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PromptAndReply:
    """A prompt (its last user message) and the raw reply, with tool calls written out."""

    prompt: str
    reply: str


TextLookup = Callable[[str, str], PromptAndReply | None]
"""The prompt and reply of a case (id) and an arm; None if unknown."""


def no_texts(case: str, arm: str) -> None:
    """The lookup of a report without texts."""


_PLAIN: Final = frozenset("\n\t")
_UNSAFE: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# Joiners are part of spelling in Indic scripts and of emoji, and do not reorder text.
_JOINERS: Final = frozenset("\u200c\u200d")


def visible(text: str) -> str:
    """Every invisible or reordering character written as \\u{...}; line breaks and tabs are kept, CR LF becomes LF."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(c if _harmless(c) else f"\\u{{{ord(c):x}}}" for c in text)


def _harmless(character: str) -> bool:
    if character in _PLAIN or character in _JOINERS:
        return True
    return unicodedata.category(character) not in _UNSAFE


def shorten(text: str, most: int) -> str:
    """At most `most` characters, and how many more there were."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters in samples.jsonl)"
