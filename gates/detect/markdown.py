"""Detects Markdown in text that is to be spoken: `find_markdown`, by a CommonMark parser with corrections. Pure.

Indented code and underlined headings make no sound; asterisks between words are arithmetic (`5*x and 6*y`), as is a `+` or `>`
before a number; a single numbered item that does not start at 1 is a sentence (`1986. A great season.`). `find_symbols` adds what
the parser does not report: bullets, emoji, LaTeX, addresses. Plain text is done after four searches.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import emoji
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gates.detect.detection import Detection, SpanSet, detection

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
        (_UNDERSCORES, "unclosed", lambda *_: False),
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


def _at(text: str, index: int) -> str:
    return text[index] if 0 <= index < len(text) else ""


_PARSER: Final = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(["code", "lheading"])
_BLOCKS: Final = {
    "heading_open": "heading", "bullet_list_open": "bullet_list", "ordered_list_open": "ordered_list",
    "blockquote_open": "blockquote", "fence": "fence", "hr": "hr", "html_block": "html_block",
    "table_open": "table",
}  # fmt: skip
_HOLDING_TEXT: Final = ("bullet_list", "ordered_list", "blockquote", "heading")
_PAIRS: Final = {"em_open": "em", "strong_open": "strong", "s_open": "strikethrough"}
_NUMBER_FIRST: Final = re.compile(r"=?\s*[-+]?[₹$€£]?\d")
_LINE_END: Final = re.compile(r"\r\n?|\n")


def find_markdown(text: str) -> list[Detection]:
    """All Markdown, and all other symbols that cannot be spoken, in order."""
    if is_plain(text):
        return []
    spans = _parsed(text)
    # A symbol inside the parser's own markup is part of it; the text of a list is not markup.
    marks = SpanSet((start, end) for kind, start, end in spans if kind not in _HOLDING_TEXT)
    headings = SpanSet((start, end) for kind, start, end in spans if kind == "heading")
    for kind, start, end in find_symbols(text):
        if not (marks.holds(start, end) or (kind == "heading" and headings.holds(start, end))):
            spans.append((kind, start, end))
    ordered = sorted(spans, key=lambda span: span[1:])
    return [detection("markdown", kind, text, start, end) for kind, start, end in ordered]


def _parsed(text: str) -> list[Span]:
    starts = [0, *(line_end.end() for line_end in _LINE_END.finditer(text)), len(text)]
    tokens = _PARSER.parse(text)
    spans: list[Span] = []
    for i, token in enumerate(tokens):
        if not token.map:
            continue
        start, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        if token.type in _BLOCKS and not _is_speech(tokens, i):
            body = text[start:end]
            spans.append(
                (_BLOCKS[token.type], start + len(body) - len(body.lstrip()), start + len(body.rstrip()))
            )
        elif token.type == "inline":
            spans += _inline(text, token, start, end)
    return spans


def _is_speech(tokens: Sequence[Token], i: int) -> bool:
    """Whether a block that the parser opened here is only a sentence that looks like one."""
    token = tokens[i]
    if token.type == "ordered_list_open":
        return _items(tokens, i) == 1 and token.attrs.get("start", 1) != 1
    if token.type == "bullet_list_open" and token.markup == "+":
        return _items(tokens, i) == 1 and _starts_with_number(tokens, i)
    return token.type == "blockquote_open" and _starts_with_number(tokens, i)


def _items(tokens: Sequence[Token], i: int) -> int:
    level, count = tokens[i].level, 0
    for token in tokens[i + 1 :]:
        if token.level == level:
            break
        count += token.type == "list_item_open" and token.level == level + 1
    return count


def _starts_with_number(tokens: Sequence[Token], i: int) -> bool:
    first = next((token for token in tokens[i:] if token.type == "inline"), None)
    return first is not None and bool(_NUMBER_FIRST.match(first.content))


def _inline(text: str, token: Token, start: int, end: int) -> Iterator[Span]:
    """The markup inside a paragraph. The parser keeps no columns, so each mark is searched for in order."""
    at, opened = start, list[tuple[str, int, int]]()
    for child in token.children or ():
        mark = _mark(child)
        place = text.find(mark, at, end) if mark else -1
        if place < 0:
            continue
        after = place + len(mark)
        if child.type in _PAIRS:
            opened.append((_PAIRS[child.type], place, after))
        elif child.nesting < 0 and opened and child.markup:
            kind, first, behind = opened.pop()
            if not (between_words(text, first, behind) and between_words(text, place, after)):
                yield kind, first, after
        elif child.type in ("link_open", "image", "code_inline", "html_inline"):
            after = _end_of(child, text, place, after, end)
            yield child.type.removesuffix("_open"), place, after
        at = place + len(mark) if child.type == "link_open" else after


def _mark(child: Token) -> str:
    """The text by which a token is found in the source; "" if it has none."""
    if child.type in ("text", "html_inline"):
        return child.content
    if child.type == "image":
        return "!["
    if child.type == "link_open":
        return "<" if child.markup == "autolink" else "["
    return "" if child.type == "link_close" else child.markup


def _end_of(child: Token, text: str, place: int, after: int, end: int) -> int:
    """Where a link, an image or code ends; for a reference link the end of its brackets."""
    if child.type == "html_inline":
        return after
    close = {"code_inline": child.markup}.get(child.type) or (">" if child.markup == "autolink" else ")")
    found_at = text.find(close, after, end)
    if found_at < 0:
        found_at = text.find("]", after, end)
    return found_at + len(close) if found_at >= 0 else after
