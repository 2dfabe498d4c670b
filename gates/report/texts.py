"""What was said: the prompts and replies that a report shows, and how a hostile text is made harmless.

A reply is whatever a model was trained, or talked into, to say. It may hold markup, control
characters, or marks that turn the direction of the line around and make one text look like another.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Said:
    """A prompt (its last user turn) and the reply, raw, as the engine gave it; tool calls written out."""

    prompt: str
    reply: str


Texts = Callable[[str, str], Said | None]
"""What was said in a case (id) by an arm; None where it is not known."""


def nothing(case: str, arm: str) -> None:
    """The texts of a report that has none beside it."""


_PLAIN: Final = frozenset("\n\t")
_UNSAFE: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# Joiners are letters' business in Indic scripts and in emoji, and turn no line around.
_JOINERS: Final = frozenset("\u200c\u200d")


def visible(text: str) -> str:
    """The text with every character that cannot be seen, or that moves others, written as \\u{...}.

    Line breaks and tabs stay; CR LF becomes LF. The result can be encoded as UTF-8.
    """
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
