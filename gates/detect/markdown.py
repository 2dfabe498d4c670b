"""Detects Markdown in text that is to be spoken, and all else that has no sound there: `find_markdown`. Pure.

One table of patterns, of which the first that matches a place names it. Text that only looks like markup is left out:
asterisks between words are arithmetic (`5*x and 6*y`), as is a `+` or `>` before a number; a single numbered item that does not start
at 1 is a sentence (`1986. A great season.`), and one dash before a line is dialogue. No pattern repeats a wide class without a bound.
"""

import re
from collections.abc import Iterator
from typing import Final

import emoji

from gates.detect.detection import Detection, SpanSet, detection

Span = tuple[str, int, int]
"""(kind, start, end) in a text."""

_BULLETS: Final = "•‣◦▪▫●○◆◇■□►➢➤✓✔✗✘☐☑★☆⁃∙"
_LINE: Final = r"^[ \t]*"
_NUMBER: Final = r"\d{1,9}[.)][ \t]+\S"
_INSIDE: Final = r"(?:[^\n]|\n(?![ \t]*\n)){1,400}?"
"""Of a mark in a paragraph."""
_DELIMITER: Final = r"[ \t]*:?-+:?[ \t]*"

# Lines: what they hold may be marked up, too.
_LINES: Final = (
    ("heading", rf"{_LINE}(?:#{{1,6}}[ \t]+\S|#{{2,6}}(?=[^\s#])).*"),
    ("hr", rf"{_LINE}([-*_])(?:[ \t]*\1){{2,}}[ \t]*$"),
    ("bullet_list", rf"(?:{_LINE}[-*][ \t]+\S.*\n?)+|{_LINE}\+[ \t]+(?![-+]?[₹$€£]?\d)\S.*|(?:{_LINE}\+[ \t]+\S.*\n?){{2,}}"),
    ("ordered_list", rf"{_LINE}(?:1[.)][ \t]+\S.*|{_NUMBER}.*(?:\n+[ \t]*{_NUMBER}.*)+)"),
    ("blockquote", rf"{_LINE}>(?!=?[ \t]*[-+]?[₹$€£]?\d)[ \t]*\S.*"),
    ("dash_list", rf"{_LINE}[–—]\s+\S.*\n\s*[–—]\s+\S"),
    ("lettered_list", rf"{_LINE}(?:[aA][.)]|\([aA1i]\))[ \t]+\S.*\n\s*(?:[bB][.)]|\((?:[bB2]|ii)\))[ \t]"),
)  # fmt: skip
_MARKS: Final = (
    ("fence", rf"{_LINE}(`{{3,}}|~{{3,}})(?s:.*?)(?:^[ \t]*\1|\Z)"),
    ("table", rf"^[^\n|]*\|[^\n|]*\|[^\n]*\n[^\n|]*\|[^\n|]*\|[^\n]*|^[^\n|]*\|.*\n{_DELIMITER}\|{_DELIMITER}$"),
    ("code_inline", r"(?<![`\\])(`{1,3})(?!`)[^`]{1,400}\1(?!`)"),
    ("image", r"!\[[^\[\]\n]{0,400}\]\([^()\n]*\)"),
    ("link", r"\[[^\[\]\n]{1,400}\]\((?:[^()\n]|\([^()\n]*\)){0,800}\)|<(?:[a-zA-Z][\w+.-]{1,31}:[^\s<>]*|[^\s<>@]+@[^\s<>]+)>"),
    ("link", rf"{_LINE}\[[^\]\n]{{1,80}}\]:[ \t]*\S+[ \t]*$"),
    ("html_inline", r"</?[a-zA-Z][a-zA-Z0-9-]*(?:\s[^<>]{0,400})?/?>|<!--"),
    ("strikethrough", r"~~(?=[^\s~])[^~\n]{1,400}~~"),
    ("strong", r"(?<![*\\])(\*{2,3})(?=[^\s*])(?:[^\n*]|\n(?![ \t]*\n)){1,400}(?<=[^\s\\])\1(?!\*)"),
    ("em", r"(?<![*\\])(\*)(?=[^\s*])(?:[^\n*]|\n(?![ \t]*\n)){1,400}(?<=[^\s\\])\1(?!\*)"),
    ("strong", rf"(?<![\w\\_])(_{{2,3}})(?=[^\s_]){_INSIDE}(?<=[^\s_\\])\1(?!\w)"),
    ("em", rf"(?<![\w\\_])(_)(?=[^\s_]){_INSIDE}(?<=[^\s_\\])\1(?!\w)"),
    ("unclosed", r"(?<![*\\])\*\*(?!\*)|(?<![\w\\])__(?=\w)"),
    ("backtick", r"(?<!\\)`+"),
    ("bullet_char", f"[{_BULLETS}]"),
    ("footnote", r"\[\^[\w-]+\]"),
    ("entity", r"&(?:[a-zA-Z][a-zA-Z0-9]{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});"),
    # Pandoc's rule excludes "$5 and $6": no space inside the dollars, no digit after them.
    ("latex", r"\$\$|\\[()\[\]]|\\[a-zA-Z]{2,}(?=\s*[{\\^_]|\s|$)"
     r"|(?<![\\$])\$(?=[^\s$])(?=[^$\n]{0,80}[\\^_{}=]|[A-Za-z]\$|[A-Za-z0-9]+\s*[-+*/<>]\s*[A-Za-z0-9]+\$)[^$\n]{1,80}(?<=\S)\$(?![\d$])"),
    ("escape", r"\\[*_`#>|~!.+-]|\\[nrt](?![a-z])"),
    ("url", r"(?i:\bhttps?://|\bwww\.)[^\s<>\"]+"),
    ("email", r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"),
)  # fmt: skip
_PATTERNS: Final = tuple(
    (kind, kinds is _MARKS, re.compile(pattern, re.MULTILINE))
    for kinds in (_LINES, _MARKS)
    for kind, pattern in kinds
)
_MAY_BE: Final = re.compile(
    rf"[*_`~<\\|\[&$@{_BULLETS}]|://|www\.|^[ \t]*(?:[-+>#–—]|\(?(?:\d{{1,9}}|[a-z]|ii)[.)])",
    re.MULTILINE | re.IGNORECASE,
)
"""Without one of these no pattern matches; most speech has none."""
_MAY_BE_EMOJI: Final = re.compile(
    "[©®\u203c-\u303d\u3297\u3299\ufe0f\U0001f000-\U000e007f]"
)  # the search is slow
# Trademark signs can be spoken, unless a variation selector asks for an emoji.
_LETTERLIKE: Final = frozenset("©®™ℹ")


def find_markdown(text: str) -> list[Detection]:
    """All Markdown, and all other symbols that cannot be spoken, in order."""
    lines = text.replace("\r\n", " \n").replace("\r", "\n")  # the same places
    spans: list[Span] = []
    for kind, is_mark, pattern in _PATTERNS if _MAY_BE.search(lines) else ():
        taken = SpanSet((start, end) for mark, start, end in spans if mark not in _HOLDING)
        for found in pattern.finditer(lines):
            if not (is_mark and taken.holds(*found.span())) and not _is_sign(kind, found):
                spans.append((kind, found.start(), len(found[0].rstrip()) + found.start()))
    spans += _emoji(text)
    return [
        detection("markdown", kind, text, start, end)
        for kind, start, end in sorted(spans, key=lambda span: span[1:])
    ]


_HOLDING: Final = frozenset(kind for kind, _ in _LINES)


def _is_sign(kind: str, found: re.Match[str]) -> bool:
    """Whether asterisks are arithmetic (2**3, 5*x and 6*y, 2 ** 3), or a backtick is a letter (Hawai`i)."""
    first, last = (found[0], found[0]) if kind not in ("strong", "em") else (found[1], found[1])
    ends = _beside(found, found.start(), len(first)), _beside(found, found.end() - len(last), len(last))
    if kind == "backtick":
        return len(first) == 1 and all(side.isalpha() for side in ends[0])
    if first[0] != "*" or kind not in ("strong", "em", "unclosed"):
        return False
    return all(side.isalnum() for both in ends for side in both) or (
        kind == "unclosed" and all(side.isspace() for side in ends[0])
    )


def _beside(found: re.Match[str], at: int, length: int) -> tuple[str, str]:
    """The characters on both sides of a mark."""
    return found.string[at - 1 : at] if at else "", found.string[at + length : at + length + 1]


def _emoji(text: str) -> Iterator[Span]:
    """Emoji, each sequence once."""
    if _MAY_BE_EMOJI.search(text):
        for item in emoji.emoji_list(text):
            if item["emoji"] not in _LETTERLIKE:
                yield "emoji", item["match_start"], item["match_end"]
