"""Detects Markdown in text that is to be spoken: `find_markdown`, by a CommonMark parser with corrections.

Indented code and underlined headings make no sound; asterisks between words are arithmetic (`5*x and 6*y`), as is a `+` or `>`
before a number; a single numbered item that does not start at 1 is a sentence (`1986. A great season.`). `symbols.py` adds what
the parser does not see. Plain text is done after four searches.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gates.detect.detection import Detection, detection
from gates.detect.spans import SpanSet
from gates.detect.symbols import Span, between_words, find_symbols, is_plain

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
    lengths = [len(line) + len(end) for line, end in _lines(text)]
    starts = [0, *accumulate(lengths)]
    tokens = _PARSER.parse(text)
    spans: list[Span] = []
    for i, token in enumerate(tokens):
        if not token.map:
            continue
        start, end = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        if token.type in _BLOCKS and not _is_speech(tokens, i):
            spans.append((_BLOCKS[token.type], *_trimmed(text, start, end)))
        elif token.type == "inline":
            spans += _inline(text, token, start, end)
    return spans


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Lines and their line breaks as the parser counts them: CR LF and a lone CR count as one LF."""
    at = 0
    for match in _LINE_END.finditer(text):
        yield text[at : match.start()], match.group()
        at = match.end()
    yield text[at:], ""


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    body = text[start:end]
    return start + len(body) - len(body.lstrip()), start + len(body.rstrip())


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
            yield _name(child), place, after
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


def _name(child: Token) -> str:
    return child.type.removesuffix("_open")
