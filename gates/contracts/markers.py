"""Markers: the tags and special tokens that chat templates teach, as data, and how a text is searched for them. Pure.

One table serves the reply parser, the detectors, and the fuzzers. A marker has one of five shapes: `<name>`, `<|name|>`
(Gemma 4: `<|name>` and `<name|>`), `[NAME]`, `◁name▷`, and `<function=NAME>`. Its name is looked up by the words in it,
after one normalization: case, HTML entities, full-width letters, and invisible characters count for nothing. So a model
that writes `<deep_think>` next month is known today. Sources of the words: the chat templates and parsers of the models
in docs/tool-calls.md.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

Kind = Literal["think", "call", "weak_call", "part", "result", "header", "turn", "role", "wrapper", "token"]
"""What a marker stands for.

think: the bounds of a thought. call: of a tool call. weak_call: the same, if JSON follows; otherwise it is an element
of somebody's XML. part: a piece of a call (`</parameter>`), of no meaning outside one. result: what a tool answered.
header: the beginning of a message, whose role or channel follows. turn: the end of one. role: another speaker's turn
begins. wrapper: encloses the answer. token: any other special token.
"""

SEAMS = "\ufdd0\ufdd1"
"""Noncharacters that the reply parser puts where the engine changes between its fields; invisible like others."""
INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x7f\xad\u034f\u061c\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    + SEAMS
)

MAX_TAG = 256
"""Characters of the longest marker."""


class Marker(NamedTuple):
    """`closes`: it ends what another begins. `name`: normalized, without brackets. `word`: in `<function=word>`, or of `<invoke name="word">`.
    `empty`: `<think/>`.
    """

    kind: Kind
    closes: bool
    name: str
    word: str = ""
    empty: bool = False


_LT, _GT = (
    "[<\uff1c]|&(?:amp;){0,2}(?:lt|#0{0,5}60|#x0{0,5}3c);",
    "[>\uff1e]|&(?:amp;){0,2}(?:gt|#0{0,5}62|#x0{0,5}3e);",
)
_ENTITY_BEGUN = r"&(?:a(?:m(?:p(?:;(?:a(?:m(?:p;?)?)?)?)?)?)?)?(?:l(?:t)?|g(?:t)?|#[0-9x]{0,8}[0-9a-f]{0,2})?"
START = "<\uff1c&[\u25c1"
"""What a marker may begin with."""
_MINIMAX = "<]minimax[>["
_TURNS = "system|user|assistant|tool|endofturn"
"""Names in `[|name|]`, as EXAONE writes its turns."""
_RAW = re.compile(
    rf"<\]minimax\[>\[|(?:{_LT})[^<>\uff1c\uff1e&\n]{{0,{MAX_TAG}}}?\n?(?:(?:{_GT})|(?<==)[\w.:-]{{1,128}}\n)"
    rf"|(?:{_LT})\s{{0,4}}function=[\w.:-]{{1,128}}\n"
    rf"|(?-i:\[/[A-Z_{INVISIBLE}]{{1,64}}\]|\[[A-Z_ {INVISIBLE}]{{1,64}}\](?!\()|\[\|(?:{_TURNS})\|\]|\[unused1[1267]\]|\[e~\[)|\u25c1[^\u25c1\u25b7\n]{{1,64}}\u25b7",
    re.IGNORECASE,
)
_PART = re.compile(
    rf"<\]minimax\[>|(?:{_LT})[^<>\uff1c\uff1e&\n]{{0,{MAX_TAG}}}(?:{_ENTITY_BEGUN}|\n)?|{_ENTITY_BEGUN}"
    rf"|(?-i:\[[/A-Z_ {INVISIBLE}]{{0,64}}\]?|\[\|[a-z]{{0,9}}\|?|\[u[nused1267]{{0,7}}\]?|\[e~?)|\u25c1[^\u25c1\u25b7\n]{{0,64}}",
    re.IGNORECASE,
)
_TAG = re.compile(
    r"<\s{0,4}(?P<slash>/?)\s{0,4}(?:\|\w{2,8}\|)?(?P<name>[a-z][\w:|-]{0,63})"
    r"(?:=(?P<word>[^<>\s\"'=]{1,128})|\s+(?P<attributes>[\w:.-]+\s{0,2}=[^<>]*?))?\s*(?P<empty>/?)\s*[>\n]",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"<(?P<a>\|?)\s{0,2}(?P<slash>/?)(?P<name>[^\s<>|]{1,64})\s{0,2}(?P<b>\|?)>")
_SQUARE = re.compile(r"\[(?P<slash>/?)(?P<name>[A-Z_ ]{3,64}|unused1[1267])\]")
_KIMI = re.compile(r"\u25c1(?P<slash>/?)(?P<name>\w{1,64})\u25b7")
_TAG_BEGUN = re.compile(
    r"<\s{0,4}/?\s{0,4}(?:\|\w{0,8}\|?)?(?P<name>[\w:|-]{0,64})(?P<more>[\s=/].*)?", re.IGNORECASE | re.DOTALL
)
_TOKEN_BEGUN = re.compile(r"<\|\s{0,2}/?[^\s<>|]{0,64}\s{0,2}\|?")
_NAME_ATTRIBUTE = re.compile(r"\bname\s{0,2}=\s{0,2}[\"']?([\w.:-]{1,128})")
_ENTITIES = re.compile(
    "&(?:amp;){0,2}(?:(lt|#0{0,5}60|#x0{0,5}3c)|(?:gt|#0{0,5}62|#x0{0,5}3e));", re.IGNORECASE
)
_HIDDEN = re.compile(f"[{INVISIBLE}]")
_PLAIN = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x2581: "_"}
_WORDS = re.compile(r"[_:|]+|(?<=[a-z])(?=[A-Z])")

_THINK = frozenset({
    "think", "thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad", "scratch", "monologue", "cot",
    "analysis", "antthinking"
})  # fmt: skip
_BESIDE_THINK = frozenset({
    "ant", "my", "the", "inner", "internal", "deep", "process", "chain", "of", "step", "final", "begin",
    "start", "end"
})  # fmt: skip
"""Words that may stand beside one of those with a hyphen, or in one word with it; any may with `_` or `:`."""
_TOOL = frozenset({
    "tool", "tools", "function", "functions", "python", "plugin", "action", "toolcall", "toolcalls",
    "functioncall", "functioncalls"
})  # fmt: skip
_CALL = frozenset({
    "call", "calls", "use", "request", "requests", "code", "toolcall", "toolcalls", "functioncall",
    "functioncalls"
})  # fmt: skip
_RESULT = frozenset(["response", "responses", "result", "results", "output", "outputs"])
_WEAK = frozenset(["tool", "tools", "function", "functions", "call", "calls", "action"])
_ENDS = frozenset(["end", "close", "suffix", "stop"])
_PARTS = frozenset({
    "parameter", "arg_key", "arg_value", "longcat_arg_key", "longcat_arg_value", "steptml:parameter",
    "atem:parameter"
})  # fmt: skip
_NAMES: dict[str, Kind] = {
    "inner_prefix": "think", "inner_suffix": "think", "unused94": "think", "unused95": "think",
    "channel": "header", "start": "header", "message": "header", "constrain": "header", "im_start": "header",
    "open": "header", "close": "header", "start_header_id": "header", "end_header_id": "header", "header_start": "header", "header_end": "header", "start_of_turn": "header",
    "start_of_role": "header", "from": "header", "begin": "header",
    "im_end": "turn", "endoftext": "turn", "end_of_text": "turn", "eot_id": "turn", "eom_id": "turn", "eot": "turn",
    "eom": "turn", "end_of_turn": "turn", "end_of_turn_token": "turn", "return": "turn", "eos": "turn", "seed:eos": "turn", "end": "turn",
    "endofturn": "turn", "end_of_msg": "turn", "end_of_sentence": "turn", "end_of_message": "turn", "end_message": "turn", "call": "turn", "/s": "turn",
    "user": "role", "system": "role", "human": "role", "observation": "role", "tool": "role", "ipython": "role",
    "environment": "role", "developer": "role", "user_token": "role", "user_id": "role", "inst": "role",
}  # fmt: skip
"""Names of special tokens that words alone do not tell."""
_ANGLE_NAMES = frozenset({"unused94", "unused95", "end_of_turn", "start_of_turn", "eos", "seed:eos"})
"""Those of them that are written as `<name>`."""
_WRAPPERS = frozenset({"answer", "final_answer", "response", "output"})
_SQUARES: dict[str, Kind] = {
    "THINK": "think", "THINKING": "think", "TOOL_CALLS": "call", "TOOL_CALL": "call", "TOOL_REQUEST": "call",
    "END_TOOL_REQUEST": "call", "BEGIN FINAL RESPONSE": "think", "END FINAL RESPONSE": "turn", "TOOL_RESULTS": "result", "TOOL_RESULT": "result", "INST": "role",
    "unused11": "call", "unused12": "call", "unused16": "think", "unused17": "think",
}  # fmt: skip
HEADS = {
    "functools[{": "call", "Action: ```json\n[": "call", "-> tool/function_call\n[": "call", "function call\n{": "call", "function call<|role_sep|>\n{": "call",
    "Here is my thought process:": "prose", "Here's my thought process:": "prose", "Here are my reasoning steps:\n": "prose", "/think\n": "message",
    "Here is my response:": "answer", "Here's my response:": "answer", 
    "to=self<|message|>": "header", "to=user<|message|>": "header", "to=functions.": "header",
    ">>>all\n": "speech", "all\n": "opening",
}  # fmt: skip
"""Words that mark what follows: calls at the beginning of a line, thoughts and headers at that of a reply, answers behind such a thought,
speech anywhere (`speech`) or only at the beginning of a reply (`opening`), as functionary writes it."""
HALVES = (
    "think", "thought", "reasoning", "tool_call", "tool_response", "function_call", "function=",
    "parameter=", "invoke"
)  # fmt: skip
"""Names by whose beginning the end of a cut reply is known as half a tag."""


def normalized(raw: str) -> str:
    """A marker as it would be written plainly."""
    if raw.isascii() and "&" not in raw:
        return raw
    raw = _ENTITIES.sub(lambda entity: "<" if entity[1] else ">", raw).translate(_PLAIN)
    return _HIDDEN.sub("", raw)


@lru_cache(1 << 12)
def read(raw: str) -> Marker | None:
    """The marker that a whole tag is; None for any other tag."""
    text = normalized(raw)
    if text == _MINIMAX:
        return Marker("token", False, "minimax")
    if text == "[e~[":  # MiniMax's end of a turn
        return Marker("turn", True, "e~[")
    if found := _SQUARE.fullmatch(text):
        name, slash = found["name"], bool(found["slash"])
        kind = _SQUARES.get(name)
        closes = slash or name.startswith(("END", "BEGIN")) or name in ("unused12", "unused17")
        return Marker("token" if kind == "role" and slash else kind, closes, name) if kind else None
    if found := _KIMI.fullmatch(text):
        kind = _tag_kind(found["name"])
        return Marker(kind, bool(found["slash"]), found["name"].lower()) if kind else None
    found = _TOKEN.fullmatch(f"<{text[1:-1]}>" if text.startswith("[|") else text)
    if found and (found["a"] or (found["b"] and re.fullmatch(r"[\w:-]+", found["name"]))):
        return _token(found)
    if text == "</s>":
        return Marker("turn", True, "/s")
    return _tag(text)


def _token(found: re.Match[str]) -> Marker:
    name = found["name"].lower().replace("\u2581", "_")
    is_gemma = not (found["a"] and found["b"])
    words = set(_WORDS.split(name))
    closes = bool(found["slash"] or (is_gemma and found["b"]) or words & _ENDS)
    kind: Kind = "token"
    if is_gemma and name in ("channel", "turn"):
        kind = "think" if name == "channel" else "turn" if closes else "header"
    elif name in _NAMES:
        kind = _NAMES[name]
    elif words & _THINK:
        kind = "think"
    elif words & _TOOL:
        kind = "result" if words & _RESULT else "token" if words & {"name", "args", "arguments"} else "call"
    return Marker(kind, closes, name)


def _tag(text: str) -> Marker | None:
    found = _TAG.fullmatch(text)
    if found is None:
        return None
    name, slash = found["name"], bool(found["slash"])
    lower, word, attributes = name.lower(), found["word"] or "", found["attributes"] or ""
    if lower == "function" and (named := _NAME_ATTRIBUTE.search(attributes)):
        return Marker("call", False, "named", named[1])
    if lower in ("function", "parameter") and word and not slash:
        return Marker("call" if lower == "function" else "part", False, lower, word.strip("\"'"))
    if lower.rpartition(":")[2] == "invoke":
        named = _NAME_ATTRIBUTE.search(attributes)
        if slash:
            return Marker("part", True, "invoke")
        return Marker("call", False, "invoke", named[1]) if named else None
    if lower in _PARTS or (lower == "function" and slash):
        return Marker("part", slash, lower)
    kind = _tag_kind(name)
    if kind is None or word:
        return None
    closes = slash or lower.startswith("end_") or lower == "unused95"
    return Marker(kind, closes, lower, "", bool(found["empty"]) and not slash)


@lru_cache(1 << 12)
def _tag_kind(name: str) -> Kind | None:
    """By the words of a name in angle brackets."""
    lower = name.lower()
    if lower in _WEAK:
        return "weak_call"
    if lower in _ANGLE_NAMES:
        return _NAMES[lower]
    if lower in _WRAPPERS:
        return "wrapper"
    parts = [word.lower() for word in _WORDS.split(name)]
    words = {each for part in parts for each in part.split("-")}
    if words & _THINK:
        is_one = "-" in name or len(parts) > len(_WORDS.split(lower))
        return "think" if not is_one or words <= _THINK | _BESIDE_THINK else None
    if words & _TOOL and words <= _TOOL | _CALL | _RESULT | set(parts):
        if words & _RESULT:
            return "result"
        return "call" if words & _CALL else None
    return None


def match(text: str, at: int) -> tuple[Marker, int] | None:
    """The marker that stands at `at`, and its end. A marker in square brackets needs the character behind it."""
    found = _RAW.match(text, at)
    if found is None:
        return None
    marker = read(found[0])
    return None if marker is None else (marker, found.end())


def may_become(text: str, at: int) -> bool:
    """Whether all from `at` on may still become one marker."""
    found = _PART.fullmatch(text, at)
    if found is None:
        return False
    part = re.sub(r"(?<!\A)&(?:amp;){0,2}[^;&]*\Z", "", normalized(found[0]))
    if part[0] != "<":
        return part[0] != "&" or len(part) < 24
    if _TOKEN_BEGUN.fullmatch(part) or _MINIMAX.startswith(part):
        return True
    tag = _TAG_BEGUN.fullmatch(part)
    if tag is None:
        return False
    if not tag["more"]:
        return True
    name = tag["name"]
    return (
        name.lower().rpartition(":")[2] in ("invoke", "function", "parameter") or _tag_kind(name) is not None
    )


def is_half(text: str) -> bool:
    """Whether a text at the end of a reply is a marker that was never finished, rather than a bracket of prose."""
    found = re.fullmatch(r"(<\||[<\u25c1\[])\s{0,4}/?\s{0,4}([a-z_][\w:=|.-]+)", normalized(text).lower())
    if found is None:
        return False
    name = found[2].rpartition(":")[2]
    return (found[1] == "<|" and found[2][1].isalnum()) or (
        len(name) > 2 and any(half.startswith(name) or name.startswith(half) for half in HALVES)
    )


def spellings() -> Iterator[str]:
    """A marker for each name of the table, as models write them: words for fuzzers."""
    angles = (*_THINK, *_WEAK, *_WRAPPERS, *_ANGLE_NAMES, *_PARTS, "tool_call", "tool_response")
    yield from (f"<{slash}{name}>" for name in sorted(angles) for slash in ("", "/"))
    yield from (f"<|{name}|>" for name in _NAMES)
    yield from (f"[{slash}{name}]" for name in _SQUARES for slash in ("", "/"))


def find(text: str, at: int = 0, end: int | None = None) -> Iterator[tuple[Marker, int, int]]:
    """Every marker in a whole text, with its span."""
    end = len(text) if end is None else end
    for found in _RAW.finditer(text, at, end):
        marker = read(found[0])
        if marker is not None:
            yield marker, found.start(), found.end()
