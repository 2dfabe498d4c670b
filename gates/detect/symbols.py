"""Finds symbols that cannot be spoken and that a CommonMark parser does not report: bullets, emoji, LaTeX, addresses. Pure."""

import re
from collections.abc import Iterator
from typing import Final

import emoji

Span = tuple[str, int, int]
"""(kind, start, end) in a text."""

# Characters that are emoji or part of one. The library searches the text for 5,000 sequences; this class
# only decides whether it has to.
_PICTURES: Final = (
    "\u00a9\u00ae\u200d\u203c\u2049\u20e3\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf"
    "\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U0001faff\U000e0020-\U000e007f"
)
_BULLETS: Final = "•‣◦▪▫●○◆◇■□►➢➤✓✔✗✘☐☑★☆⁃∙"
_MAY_BE_EMOJI: Final = re.compile(f"[{_PICTURES}]")
# Trademark signs can be spoken, unless a variation selector asks for an emoji.
_LETTERLIKE: Final = frozenset("©®™ℹ")

SYMBOLS: Final = re.compile(rf"[*_`~<\\|\[&$@{_BULLETS}{_PICTURES}]")
"""Without one of these characters neither the parser nor this module finds anything inside a line."""

LINE_STARTS: Final = re.compile(r"^[ \t]*(?:[-+>#=–—]|\(?(?:\d{1,9}|[a-zA-Z]|ii)[.)])", re.MULTILINE)
"""The same for markup that counts only at the start of a line."""

_URL: Final = re.compile(r"\bhttps?://[^\s<>\"]+|\bwww\.[^\s<>\"]+", re.IGNORECASE)
_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_PATTERNS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("bullet_char", re.compile(f"[{_BULLETS}]")),
    # At least two lines: one dash before a line is dialogue.
    ("dash_list", re.compile(r"^[ \t]*[–—]\s+\S.*\n\s*[–—]\s+\S", re.MULTILINE)),
    (
        "lettered_list",
        re.compile(
            r"^[ \t]*(?:[aA][.)]|\([aA1i]\))[ \t]+\S.*\n\s*(?:[bB][.)]|\((?:[bB2]|ii)\))[ \t]", re.MULTILINE
        ),
    ),
    ("heading", re.compile(r"^[ \t]*#{2,6}(?=[^\s#])", re.MULTILINE)),
    ("table", re.compile(r"^[^\n|]*\|[^\n|]*\|[^\n]*\n[^\n|]*\|[^\n|]*\|[^\n]*", re.MULTILINE)),
    ("footnote", re.compile(r"\[\^[\w-]+\]")),
    ("entity", re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")),
    ("latex", re.compile(r"\$\$|\\[()\[\]]|\\[a-zA-Z]{2,}(?=\s*[{\\^_]|\s|$)")),
    ("escape", re.compile(r"\\[*_`#>|~!.+-]|\\[nrt](?![a-z])")),
    ("url", _URL),
    ("email", _EMAIL),
)
# Pandoc's rule excludes "$5 and $6": no space inside the dollars, no digit after them.
_DOLLARS: Final = re.compile(r"(?<![\\$])\$(?=[^\s$])([^$\n]{1,80}?)(?<=\S)\$(?![\d$])")
_FORMULA: Final = re.compile(r"[\\^_{}=]|^[A-Za-z]$|^[A-Za-z0-9]+\s*[-+*/<>]\s*[A-Za-z0-9]+$")
_STARS: Final = re.compile(r"(?<![*\\])\*\*(?!\*)")
_UNDERSCORES: Final = re.compile(r"(?<![\w\\])__(?=\w)")
_BACKTICKS: Final = re.compile(r"(?<!\\)`+")


def is_plain(text: str) -> bool:
    """Whether a text cannot contain any symbol; true for most prose, and fast."""
    if SYMBOLS.search(text) or LINE_STARTS.search(text):
        return False
    # A carriage return alone is a line break to the parser, but not to a regular expression.
    return not ("://" in text or "\r" in text or "www." in text.lower())


def find_symbols(text: str) -> Iterator[Span]:
    """Every symbol that needs no parser, in no order; spans of different kinds may overlap."""
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            yield kind, *match.span()
    for match in _DOLLARS.finditer(text):
        if _FORMULA.search(match[1]):
            yield "latex", *match.span()
    yield from _unclosed_markup(text)
    yield from find_emoji(text)


def find_emoji(text: str) -> Iterator[Span]:
    """Emoji, each sequence once."""
    if _MAY_BE_EMOJI.search(text):
        for item in emoji.emoji_list(text):
            if item["emoji"] not in _LETTERLIKE:
                yield "emoji", item["match_start"], item["match_end"]


def _unclosed_markup(text: str) -> Iterator[Span]:
    """Emphasis and code marks, closed or not; the caller drops those that its parser has paired."""
    for pattern, kind, joins in (
        (_STARS, "unclosed", between_words),  # 2**3, f**k
        (_UNDERSCORES, "unclosed", _never),
        (_BACKTICKS, "backtick", _between_letters),  # Hawai`i
    ):
        for match in pattern.finditer(text):
            if not joins(text, *match.span()) and not _between_spaces(text, *match.span()):
                yield kind, *match.span()


def between_words(text: str, start: int, end: int) -> bool:
    """Whether letters or digits touch a symbol on both sides."""
    return _at(text, start - 1).isalnum() and _at(text, end).isalnum()


def _between_letters(text: str, start: int, end: int) -> bool:
    return end - start == 1 and _at(text, start - 1).isalpha() and _at(text, end).isalpha()


def _between_spaces(text: str, start: int, end: int) -> bool:
    """Whether it is an operator, as in 2 ** 3; a backtick is none."""
    return text[start] != "`" and _at(text, start - 1).isspace() and _at(text, end).isspace()


def _never(text: str, start: int, end: int) -> bool:
    return False


def _at(text: str, index: int) -> str:
    return text[index] if 0 <= index < len(text) else ""
