"""Detects tool calls that appear as text in a reply: `find_raw_calls`. Pure.

Markers, JSON, code, ReAct, and announced calls, in the reply's own words; in a fence, only calls of tools that were sent. What the reply
parser takes for text (docs/tool-calls.md) is found here.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from gates.contracts.markers import START, Marker
from gates.detect.detection import Detection, detection
from gates.detect.tags import fenced, markers, own_words

_QUOTE: Final = "[\"'“”]?"
_NAME: Final = rf"{_QUOTE}(?:name|function|tool|tool_name|function_name|action){_QUOTE}\s*:\s*(?:{_QUOTE}(?P<%s>[\w.-]{{1,64}}){_QUOTE}|\"[^\"\n]{{1,64}}\")"
_ARGUMENTS: Final = rf"{_QUOTE}(?P<%s>arguments|parameters|args|params|input|action_input|kwargs){_QUOTE}\s*:"
_JSON: Final = re.compile(
    rf"\{{\s*(?:\"\w{{1,32}}\"\s*:\s*\"[^\"\n]{{0,200}}\"\s*,\s*){{0,2}}{_NAME % 'first'}\s*,\s*{_ARGUMENTS % 'behind'}(?P<schema>\s*\{{\s*[\"']type[\"']\s*:\s*[\"']object)?(?=\s*(?:[{{\[]|\"\{{|\Z|[^\"\s]))"
    rf"|\{{\s*{_ARGUMENTS % 'before'}[^{{}}]{{0,40}}\{{[^{{}}]{{0,400}}\}}\s*,\s*{_NAME % 'last'}"
    rf"|[\"'](?P<list>tool_calls?|function_call)[\"']\s*:\s*[\[{{](?:[^{{}}]{{0,200}}{_NAME % 'listed'})?"
)
_CODE: Final = re.compile(
    r"^[ \t]*\[?(?P<name>[a-zA-Z]\w{0,63}(?:\.\w{1,63}){0,4})\((?P<arguments>[^\n]{0,400}(?=\)\]?[ \t]*$)|[^()\n]{0,400}\Z)",
    re.MULTILINE,
)
_PATTERNS: Final = (
    ("tool_code", re.compile(r"^[ \t]*```+tool_code\b", re.MULTILINE)),
    ("react_call", re.compile(r"^\W{0,8}action\W{0,4}:[^\n]{1,80}\n\W{0,8}action[ _]input\W{0,4}:", re.MULTILINE | re.IGNORECASE)),
    ("header_call", re.compile(r"(?:assistant|(?:^|assistant|<\|channel\|>)(?:commentary|analysis))\s{1,4}to=functions\.\w|^>>>[\w.-]{1,64}\n\{", re.MULTILINE)),
)  # fmt: skip
_ANNOUNCED: Final = (
    r"(?:\b(?:I|we)(?:'ll|'d| will| would| can| could| should| must| need to| have to|['’]m going to)? (?:use|used|call|called|invoke|need)"
    r"(?: the| my)?(?: function| tool)?|ನಾನು)\s[`\"'*]{0,3}%s\b"
)
_NAMED: Final = re.compile(r"\{\s*(?:\"type\"\s*:\s*\"function\"\s*,\s*)?[\"']?(?:name|tool)")
_JSON_BEHIND: Final = re.compile(r"\s{0,80}(?:\[\s{0,80})?(?:\{\s{0,80}(?:[\"'}]|\w+\s*:)|\])")
_BRACE: Final = re.compile(r"[{}]")
_SIGNS: Final = START + "{}_(=`"
"""Every pattern needs one of these, but that of ReAct."""


def find_raw_calls(text: str, names: Collection[str] = ()) -> list[Detection]:
    """Calls, parts of calls, and calls that are announced by name, in order. `names` are the tools that were sent."""
    if not (any(map(text.__contains__, (*_SIGNS, *names))) or "action" in text.lower()):
        return []
    spans = sorted({*_spans(text, names)}, key=lambda span: (span[1], -span[2]))
    return [detection("raw_call", kind, text, start, end) for kind, start, end in _outer(spans)]


def _spans(text: str, names: Collection[str]) -> Iterator[tuple[str, int, int]]:
    own = own_words(text)
    for marker, start, end in markers(text):
        if _is_call(marker, bool(_JSON_BEHIND.match(own, end))):
            yield f"{marker.kind}_tag", start, end
    for kind, pattern in _PATTERNS:
        yield from ((kind, *match.span()) for match in pattern.finditer(text if kind == "tool_code" else own))
    yield from _json_and_code(own, 0, names, is_fence=False)
    for start, body in fenced(text):
        yield from _json_and_code(body, start, names, is_fence=True)
    if end := _end_of_json(own):
        yield "json_call", 0, end
    for name in names:
        exact = re.escape(name)
        word = exact if "_" in name else rf"(?:`{exact}`|{exact} (?:tool|function))"
        for form in (
            _ANNOUNCED % word,
            rf"</?{exact}\b[^<>\n]{{0,200}}>|<function name=[\"']{exact}[\"']|\[{exact}\((?:\w+=|\)\])",
            rf"(?:^|[\n>])\W{{0,4}}{exact}\s{{1,4}}(?:<\|[^<>\n]{{1,40}}>\s{{0,4}})?\{{\s{{0,9}}[\"}}]",  # GLM-4
        ):
            yield from (("named", *match.span()) for match in re.finditer(form, text))
    if not names:
        for match in re.finditer(_ANNOUNCED % r"[a-z]+(?:_[a-z0-9]+)+[`\"'*]{0,3} (?:tool|function)", own):
            yield "named", *match.span()


def _end_of_json(text: str) -> int:
    """Where a text ends, in its first line, the JSON that its reasoning began; 0 if it does not."""
    line, depth = text.partition("\n")[0], 0
    for brace in _BRACE.finditer(line):
        depth += 1 if brace[0] == "{" else -1
        if depth < 0:
            return brace.end() if '"' in line[: brace.end()] else 0
    return 0


def _is_call(marker: Marker, has_json: bool) -> bool:
    """Whether a marker is a call's, and JSON follows it."""
    if marker.kind == "weak_call":
        return not marker.closes and has_json
    if marker.kind == "part":
        return bool(marker.word) and not marker.closes
    return marker.kind in ("call", "result")


def _json_and_code(
    text: str, at: int, names: Collection[str], *, is_fence: bool
) -> Iterator[tuple[str, int, int]]:
    """Calls in JSON and code. In a fence, and where the form is common in documentation, the tool must have been sent."""
    for match in _JSON.finditer(text):
        is_sent = (match["first"] or match["last"] or match["listed"]) in names
        keyword = match["behind"] or match["before"] or match["list"]
        is_sure = keyword not in ("parameters", "args", "params", "input", "kwargs")
        if match["schema"] and not is_sure:
            continue  # a tool that is described
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" \t[-*")
        if is_fence:
            is_call = not line and (
                is_sent or (is_sure and bool(names) and not text[: match.start()].strip())
            )
        else:
            is_object = text[match.end() :].lstrip()[:1] in ("", "{", '"')
            is_call = is_sent or is_sure or (is_object and not names and bool(_NAMED.match(match[0])))
        if is_call:
            yield "json_call", at + match.start(), at + match.end()
    lines = [line for line in text.splitlines() if line.strip()]
    calls = list(_CODE.finditer(text))
    for match in calls:
        is_sent = match["name"] in names and not (is_fence and len(calls) < len(lines))
        if is_sent or (not is_fence and len(lines) == 1 and re.match(r"\w+=(?!=)", match["arguments"])):
            yield "code_call", at + match.start(), at + match.end()


def _outer(spans: list[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """Spans that are not inside the previous one, so that a call's name in its own JSON is not reported twice."""
    behind = -1
    for kind, start, end in spans:
        if start >= behind or end > behind:
            yield kind, start, end
            behind = max(behind, end)
