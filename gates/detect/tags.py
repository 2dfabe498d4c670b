"""Finds the markers of chat templates that a reply writes in its own voice, and replies with nothing beside them. Pure.

Code is quoted, and a marker inside a sentence ("The <think> tag …") is mentioned; neither is the model's own. There are two sources
of markers: the table (`gates.contracts.markers`), and the tokenizer's added vocabulary (`added_tokens`), because a model with new
tags leaks those.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gates.contracts.markers import START, Kind, Marker, find, is_half, read
from gates.detect.detection import Detection, detection

Own = tuple[Marker, int, int]

_FENCE: Final = re.compile(
    r"^[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\s`]*)[^`\n]*\n(?P<body>[\s\S]*?)(?:^[ \t]*(?P=mark)[`~]*[ \t]*$|\Z)", re.MULTILINE
)  # fmt: skip
_SPAN: Final = re.compile(r"(?<!`)(?P<mark>`{1,2})(?!`)[^`\n]+(?P=mark)(?!`)")
_SPOKEN: Final = frozenset(("", "json", "text", "txt", "plaintext", "tool_call", "tool_code", "tool"))
"""Languages of a fence that models put around a whole reply; any other makes it code."""
_QUOTES: Final = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "“", "«": "»", "「": "」", "(": ")", "[": "]"}
_WITHIN: Final = re.compile(r"[\w,:)\]\"'”’][ \t\xa0]{1,3}\Z")
_BEHIND: Final = re.compile(r"[ \t\xa0](?:[^\W\d_A-Z]|[A-Z]+\b)|[.,;:!?)\]…，。、-]|\Z|<(?=/)")
_SUBJECT: Final = re.compile(
    r"[ \t-]?\s?(?:tags?|tokens?|is|are|was|means?|marks?|holds?|begins?|starts?|ends?|stands?|refers?|represents?|comes?|goes|can|should|must|has|"
    r"ist|bedeutet|sind|es|significa|est|signifie|é|è|jest|означает|это|标签|標籤|标记|是|表示|タグ|は|トークン|태그|토큰|ಟ್ಯಾಗ್|टैग)(?![^\W\d_])",
    re.IGNORECASE,
)  # fmt: skip
_JOINED: Final = re.compile(r"[\s.,/…—-]*(?:and|or|to|und|oder|et|ou|y|o|e|a)?[\s.,/…—-]*", re.IGNORECASE)
_UNMARKED: Final = re.compile(
    r"""(?P<think><details\b[^<>\n]{0,80}\btype\s?=\s?["']?(?:reasoning|tool_calls)\b  # Open WebUI's
    | \Aanalysis(?=[A-Z]) | assistant(?:final|analysis|commentary)(?=[A-Z<])  # Harmony without its tokens
    | \A[\s"“*#]{0,4}(?i:here(?:'s|\ is)\ (?:a|my|the)\ (?:thinking|thought|reasoning)\ process\b[^\n:]{0,40}|(?:thinking|thought|reasoning)\ process[*\ ]{0,3})(?::(?=[*\ ]{0,3}(?:\n|\Z))|\n|\Z)  # Qwen3.5, granite
    | \A(?:ಆಲೋಚನಾ|ಯೋಚನಾ)\ ಪ್ರಕ್ರಿಯೆ:
    | </?internal>)
    | <(?:bos|pad|unk)> | \A<s> | \[/?(?:AVAILABLE_TOOLS|SYSTEM_PROMPT)\]
    | (?m:^)(?:user|human)\n(?:[^\n]*\n){1,20}?(?:assistant|model)\n  # a template's roles without their tokens
    """,
    re.VERBOSE,
)
"""What the reply parser leaves alone, since answers hold it as well."""
_NEEDED: Final = (*START, "analysis", "assistant", "model\n", "rocess", "ಪ್ರಕ್ರಿಯೆ")
"""A text without any of these has no marker; most have none, and the patterns take ten times as long."""
_JSON: Final = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\"\[{\d])[\s\S]*[}\]]\s*")
"""An object or list, whose strings are data."""
_OF_CALLS: Final = re.compile("tool|function|call|invoke|parameter", re.IGNORECASE)
_ELEMENT: Final = re.compile(r"</?[a-z][a-z0-9]{0,9}>")


def own_words(text: str) -> str:
    """The text with blanks for its code, which keeps every place. A fence around the whole reply is no code unless its language says so."""
    if "`" not in text and "~~~" not in text:
        return text
    body = text.strip()
    whole = _FENCE.match(body)
    if whole and whole.end() == len(body) and whole["info"].lower() in _SPOKEN:
        first = text.index(body) + whole.start("body")
        return f"{' ' * first}{whole['body']}".ljust(len(text))
    return _SPAN.sub(_blank, _FENCE.sub(_blank, text))


def _blank(code: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", code[0])


def fenced(text: str) -> Iterator[tuple[int, str]]:
    """Where the content of each fence starts, and that content, if its language is one around replies."""
    for match in _FENCE.finditer(text):
        if match["info"].lower() in _SPOKEN:
            yield match.start("body"), match["body"]


def markers(text: str, tokens: Collection[str] = ()) -> Iterator[Own]:
    """Every marker, and every special token of the model, that stands in the reply's own words; and half of one at its end."""
    if not any(map(text.__contains__, (*_NEEDED, *tokens))) or _JSON.fullmatch(text):
        return
    own = own_words(text)
    behind = -1  # the end of the last marker that was mentioned
    for marker, start, end in find(own):
        if _is_mentioned(own, start, end) or (behind >= 0 and _JOINED.fullmatch(own, behind, start)):
            behind = end
        elif not (marker.name == "/s" and "<s>" in own[:start]):  # HTML strikes text out
            yield marker, start, end
    for match in _UNMARKED.finditer(own):
        kind: Kind = "think" if match["think"] else "token"
        if not _is_mentioned(own, *match.span()):
            yield Marker(kind, False, match[0]), *match.span()
    for token in tokens:
        at = own.find(token)
        while at >= 0:
            if read(token) is None and not _is_mentioned(own, at, at + len(token)):
                yield Marker("token", False, token), at, at + len(token)
            at = own.find(token, at + len(token))
    at = max(map(own.rfind, "<[\u25c1"))
    if at >= 0 and is_half(own[at:].rstrip()):
        yield Marker("call" if _OF_CALLS.search(own, at) else "think", False, own[at:]), at, len(text)


def _is_mentioned(text: str, start: int, end: int) -> bool:
    """Whether a marker is quoted, or a word of a sentence."""
    if start and _QUOTES.get(text[start - 1]) == text[end : end + 1]:
        return True
    is_parameter = text[start - 1 : start].isalnum() and text[start + 1 : start + 2].isupper()
    if is_parameter or _SUBJECT.match(text, end):
        return True  # a type's parameter, Box<Thought>; or the subject of a sentence
    return bool(_WITHIN.search(text, max(0, start - 4), start) and _BEHIND.match(text, end))


def added_tokens(tokenizer: Mapping[str, Any]) -> frozenset[str]:
    """The added vocabulary of a `tokenizer.json`, as texts: without plain words, white space and elements of HTML, which some add for compression."""
    return frozenset(entry["content"] for entry in tokenizer.get("added_tokens", ()) if _is_sign(entry))


def _is_sign(entry: Any) -> bool:
    text = entry.get("content") if isinstance(entry, Mapping) else None
    if not isinstance(text, str) or len(text) <= 2 or text.isspace() or text.strip().isalnum():
        return False
    return entry.get("special", True) or read(text) is not None or not _ELEMENT.fullmatch(text)


_KINDS: Final = frozenset({"header", "turn", "role", "token", "result"})


def find_broken_template(text: str, tokens: Collection[str] = ()) -> list[Detection]:
    """Every marker of a template that belongs to no thought and no call. `tokens`: the model's special tokens."""
    own = markers(text, tokens)
    found = [(start, end, marker.kind) for marker, start, end in own if marker.kind in _KINDS]
    return [detection("template", kind, text, start, end) for start, end, kind in sorted(found)]


_HEARD: Final = re.compile(r"[^\W_]")


def find_empty(text: str, *, calls: int = 0) -> list[Detection]:
    """At most one detection; a reply with tool calls may be silent. Kinds: nothing; invisible (white space, control
    characters); tags (with or without a thought between them); signs (no letter and no digit: "...", an emoji).
    """
    if calls:
        return []
    if not text:
        return [Detection("empty", "nothing", 0, 0, "")]
    if not _HEARD.search(text):
        is_visible = any(unicodedata.category(character)[0] not in "ZC" for character in text)
        return [detection("empty", "signs" if is_visible else "invisible", text, 0, len(text))]
    if "<" in text and not _HEARD.search(_outside(text)):
        return [detection("empty", "tags", text, 0, len(text))]
    return []


def _outside(text: str) -> str:
    """The text without whole thoughts, and without single tags."""
    said, at, is_thought = [], 0, False
    for marker, start, end in markers(text):
        said.append("" if is_thought else text[at:start])
        is_thought = not marker.closes if marker.kind == "think" else is_thought
        at = end
    return " ".join([*said, "" if is_thought else text[at:]])
