"""Detects tool calls that appear as text in a reply: `find_raw_calls`. Pure.

Markers, JSON, code, ReAct, and talk about a tool, for which the tools' names are needed; without them, a name counts only
next to "tool" or "function". What the reply parser takes for text (docs/tool-calls.md) is found here.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gates.contracts.markers import START
from gates.detect.detection import Detection, detection
from gates.detect.tags import marked

_MARKERS: Final = frozenset({"call", "part", "result"})
_QUOTE: Final = "[\"'“”]?"
_NAME: Final = rf"{_QUOTE}(?:name|function|tool|tool_name|function_name|action){_QUOTE}\s*:\s*{_QUOTE}[\w.-]{{1,64}}{_QUOTE}"
_ARGUMENTS: Final = rf"{_QUOTE}(?:arguments|parameters|args|params|input|action_input|kwargs){_QUOTE}\s*:"
_CALL: Final = r"[a-zA-Z][\w.]{1,63}\(\w{1,64}=[^\n]{0,400}\)"
_PATTERNS: Final = (
    (
        "json_call",
        re.compile(
            rf"\{{\s*{_NAME}\s*,\s*{_ARGUMENTS}"
            rf"|\{{\s*{_ARGUMENTS}[^{{}}]{{0,40}}\{{[^{{}}]{{0,400}}\}}\s*,\s*{_NAME}"
            r"|[\"'](?:tool_calls?|function_call)[\"']\s*:\s*[\[{]"
        ),
    ),
    # Calls in code: snake_case names only, because `print(` and `f(x)` are not an assistant's tools.
    ("code_call", re.compile(r"\b[a-z]+(?:_[a-z]+)+\((?:[^()\n]{0,200}\)|[^()\n]{0,200}$)")),
    ("code_call", re.compile(rf"^[ \t]*(?:{_CALL}|\[{_CALL}\])[ \t]*$|^[ \t]*```+tool_code\b", re.MULTILINE)),
    ("react_call", re.compile(r"^\W{0,8}action[ _]input\W{0,4}:", re.MULTILINE | re.IGNORECASE)),
    (
        "header_call",
        re.compile(
            r"(?:^|assistant|(?<!`)<\|channel\|>)(?:commentary|analysis)\s{1,4}to=functions\.\w", re.MULTILINE
        ),
    ),
    (
        "named",
        re.compile(
            r"\b(?:the|a|using|use|call|calling|called)\s+[`\"'*]*(?P<name>[a-z]+(?:_[a-z0-9]+)+)[`\"'*]*\s+(?:tool|function|api)\b"
            r"|\b(?:tool|function)\s+(?:called\s+|named\s+)?[`\"'*]*(?P<after>[a-z]+(?:_[a-z0-9]+)+)\b",
            re.IGNORECASE,
        ),
    ),
)
_BRACE: Final = re.compile(r"[{}]")
_SIGNS: Final = START + "{}_(="
"""Every pattern needs one of these, but that of ReAct."""


def find_raw_calls(text: str, names: Sequence[str] = ()) -> list[Detection]:
    """Calls, parts of calls, and mentions of tools, in order. `names` are the tools that were sent."""
    if not (any(map(text.__contains__, (*_SIGNS, *names))) or "action" in text.lower()):
        return []
    spans = sorted({*_spans(text, names)}, key=lambda span: (span[1], -span[2]))
    return [detection("raw_call", kind, text, start, end) for kind, start, end in _outer(spans)]


def _spans(text: str, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for marker, start, end in marked(text):
        if marker.kind in _MARKERS or (marker.kind == "weak_call" and marker.name == "function"):
            yield f"{marker.kind}_tag", start, end
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            if kind != "react_call" or text.count("```", 0, match.start()) % 2 == 0:
                yield kind, *match.span()
    if end := _end_of_json(text):
        yield "json_call", 0, end
    for name in names:
        for match in _said(name).finditer(text):
            yield "named", *match.span()


def _end_of_json(text: str) -> int:
    """Where a text ends the JSON that its reasoning began; 0 if it does not."""
    depth = 0
    for brace in _BRACE.finditer(text):
        depth += 1 if brace[0] == "{" else -1
        if depth < 0:
            return brace.end() if '"' in text[: brace.end()] else 0
    return 0


def _said(name: str) -> re.Pattern[str]:
    """A pattern for a tool's name in prose. A name that is an ordinary word ("play") needs quotes, brackets or the word "tool"."""
    exact = re.escape(name)
    if "_" in name:
        return re.compile(rf"(?<!\w){exact}(?!\w)")
    return re.compile(rf"`{exact}`|\b{exact}\(|\b{exact}\s+(?:tool|function)\b|</?{exact}\b[^<>\n]{{0,200}}>")


def _outer(spans: Sequence[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """Spans that are not inside the previous one, so that a call's name in its own JSON is not reported twice."""
    behind = -1
    for kind, start, end in spans:
        if start >= behind or end > behind:
            yield kind, start, end
            behind = max(behind, end)
