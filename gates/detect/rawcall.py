"""Detects tool calls that appear as text in a reply: `find_raw_calls`. Pure.

Hermes JSON, Qwen's XML, code, and talk about a tool, for which the tools' names are needed; without them, a name counts only
next to "tool" or "function".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gates.detect.detection import Detection, detection

_TAGS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "tool_call_tag",
        re.compile(
            r"</?(?:tool_calls?|function_calls?|tool_code|tool_use|invoke|tool_responses?)\b[^<>\n]{0,40}>?"
            r"|<\|(?:/?tool_call|tool_calls_begin|tool_calls?_section_begin|function_calls?|python_tag|plugin)[^>]{0,20}\|?>"
            r"|\[TOOL_(?:CALLS?|REQUEST)\]|<｜tool▁calls?▁begin｜>",
            re.IGNORECASE,
        ),
    ),
    ("function_tag", re.compile(r"</?function(?:=[^<>\n]{0,64}>?|>)")),
    (
        "parameter_tag",
        re.compile(r"</?parameter(?:=[^<>\n]{0,64}>?|>)|</?(?:longcat_)?arg_(?:key|value)>", re.IGNORECASE),
    ),
)
_NAME: Final = r"[\"'](?:name|function|tool|tool_name|function_name|action)[\"']\s*:\s*[\"'][\w.-]{1,64}[\"']"
_ARGUMENTS: Final = r"[\"'](?:arguments|parameters|args|params|input|action_input|kwargs)[\"']\s*:"
_JSON: Final = re.compile(
    rf"\{{\s*{_NAME}\s*,\s*{_ARGUMENTS}|\{{\s*{_ARGUMENTS}[^{{}}]{{0,40}}\{{[^{{}}]{{0,400}}\}}\s*,\s*{_NAME}"
)
_WRAPPED: Final = re.compile(r"[\"'](?:tool_calls?|function_call)[\"']\s*:\s*[\[{]")
# Calls in code: snake_case names only, because `print(` and `f(x)` are not an assistant's tools.
_CODE: Final = re.compile(r"\b[a-z]+(?:_[a-z]+)+\((?:[^()\n]{0,200}\)|[^()\n]{0,200}$)")
_NEAR: Final = re.compile(
    r"\b(?:the|a|using|use|call|calling|called)\s+[`\"'*]*(?P<name>[a-z]+(?:_[a-z0-9]+)+)[`\"'*]*\s+(?:tool|function|api)\b"
    r"|\b(?:tool|function)\s+(?:called\s+|named\s+)?[`\"'*]*(?P<after>[a-z]+(?:_[a-z0-9]+)+)\b",
    re.IGNORECASE,
)


def find_raw_calls(text: str, names: Sequence[str] = ()) -> list[Detection]:
    """Calls, parts of calls, and mentions of tools, in order. `names` are the tools that were sent."""
    if not ("<" in text or "[" in text or "{" in text or "_" in text or (names and _speaks(text, names))):
        return []
    spans = sorted({*_spans(text, names)}, key=lambda span: (span[1], -span[2]))
    return [detection("raw_call", kind, text, start, end) for kind, start, end in _outer(spans)]


def _speaks(text: str, names: Sequence[str]) -> bool:
    return any(name in text for name in names)


def _spans(text: str, names: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for kind, pattern in _TAGS:
        for match in pattern.finditer(text):
            yield kind, *match.span()
    for pattern in (_JSON, _WRAPPED):
        for match in pattern.finditer(text):
            yield "json_call", *match.span()
    for match in _CODE.finditer(text):
        yield "code_call", *match.span()
    for match in _NEAR.finditer(text):
        yield "named", *match.span()
    for name in names:
        for match in _said(name).finditer(text):
            yield "named", *match.span()


def _said(name: str) -> re.Pattern[str]:
    """A pattern for a tool's name in prose. A name that is an ordinary word ("play") needs quotes, brackets or the word "tool"."""
    exact = re.escape(name)
    if "_" in name:
        return re.compile(rf"(?<!\w){exact}(?!\w)")
    return re.compile(rf"`{exact}`|\b{exact}\(|\b{exact}\s+(?:tool|function)\b")


def _outer(spans: Sequence[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """Spans that are not inside the previous one, so that a call's name in its own JSON is not reported twice."""
    behind = -1
    for kind, start, end in spans:
        if start >= behind or end > behind:
            yield kind, start, end
            behind = max(behind, end)
