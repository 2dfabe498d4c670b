"""Tool calls that no tag announces: in JSON, in JSON with loose quotes, or in Python's form.

Models that were trained for another engine's parser write them so: `{"name": …, "arguments": {…}}`, alone, in an array,
with single quotes or none around its keys, or `[f(x=1), g()]`. A bracket is held until it is shown to be no call (by the
first key, the first name, or the second character of most), or until the value is whole. What is no call is text, to the
letter.

JSON that begins its line is a call when it is whole. Anywhere else in a line, and in Python's form, it is one if the line
ends behind it: with more words behind it, it is an example that is talked about.
"""

import re
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from app.stream.dropped_text import DroppedText
from app.stream.events import CallArguments, CallStart, Dropped, Segment
from app.stream.hermes import ARGUMENT_KEYS, MAX_NAME_CHARS
from app.stream.jsonscan import JSONScanner, NotJSON, OtherKey, kind_of
from app.stream.loose_calls import Brackets, python_calls
from app.stream.schema import CallRules
from app.stream.tags import Scanner

LONGEST_BARE = 1 << 16
"""Characters of a JSON value that are held until it is known whether it is a call."""
_LONGEST_LOOSE = 1 << 11
"""The same of loose JSON inside a line, which can only be dropped: a voice waits for it."""

_NAMES = ("name", "function", "tool", "tool_name", "function_name", "action")
_CONTAINERS = ("function", "function_call", "tool_call", "tool_calls")
_BESIDE = ("type", "id", "call_id", "index")
_KEYS = frozenset({*_NAMES, *ARGUMENT_KEYS, *_CONTAINERS, *_BESIDE})
_KEYS_BEGUN = frozenset(key[:size] for key in _KEYS for size in range(len(key) + 1))
_UNIQUE = {"name": "name", "arguments": "arguments", "parameters": "arguments"}
_MAX_NESTING = 3
"""`{"tool_calls": [{"function": {…}}]}`: no form is nested deeper."""

_SAID_NAME = re.compile(rf'"(?:{"|".join(_NAMES)})"\s{{0,64}}:\s{{0,64}}"[^"\\]{{1,{MAX_NAME_CHARS}}}"')
_SAID_ARGUMENTS = re.compile(rf'"(?:{"|".join(ARGUMENT_KEYS)})"\s{{0,64}}:')
_SAID_KEY = re.compile(r'"\s{0,64}:')
_QUOTE = r"[\\\"'\u2018-\u201d]{0,2}"
"""Around a key: no quotes, either kind, typographic ones, or escaped ones."""
_COLON = rf"{_QUOTE}\s{{0,64}}:\s{{0,64}}{_QUOTE}"
_LOOSE_NAME = re.compile(rf"\b(?:{'|'.join(_NAMES)}){_COLON}([\w.:/-]{{1,{MAX_NAME_CHARS}}})")
_LOOSE_ARGUMENTS = re.compile(rf"\b(?:{'|'.join(ARGUMENT_KEYS)}){_COLON}\{{")
_OBJECT_HEAD = re.compile(
    rf"(?:\[\s*+)?\{{\s*+(?:{_QUOTE}(?P<key>[A-Za-z_]{{0,16}}+)(?:{_QUOTE}\s*+(?P<colon>:)?)?)?"
)
_CALLS_HEAD = re.compile(
    r"\[\s*+(?:(?P<name>[A-Za-z_][\w.:/-]{0,127}+)"
    r"(?:(?P<open>\()\s*+(?P<empty>\))?(?:[A-Za-z_]\w{0,127}+\s*+(?P<named>=)?)?)?)?"
)
_KEY_BEGINS = (
    rf"(?:[\"'\\\u2018-\u201d]|(?:{'|'.join(sorted(_KEYS))}){_QUOTE}\s*+(?::|\Z)"
    rf"|[A-Za-z_]{{1,16}}+(?:{_QUOTE}\s*+)?\Z|\Z)"
)
_OBJECT_BEGINS = rf"\{{\s*+(?:{_KEY_BEGINS}|\}}\s*+(?:[,\]]|\Z))"
_LIST_BEGINS = r"(?P<name>[A-Za-z_][\w.:/-]{0,127}+)(?:\Z|(?P<open>\()(?P<called>\s*+(?:\)|[A-Za-z_]\w{0,127}+\s*+(?:=|\Z)|\Z))?)"
BRACKET = re.compile(
    rf"(?<![\"'`])(?:\{{(?=\s*+{_KEY_BEGINS})|\[(?=\s*+(?:{_OBJECT_BEGINS}|{_LIST_BEGINS}|\Z)))"
)
"""A bracket that may begin a call; one in quotes begins none. For every other one, `BareCall` would give back as text what
shows it to be none: this only says so at once. The text's end may become anything."""
_LONGEST_HEAD = 256
_LONGEST_BLANK = 64
"""Spaces behind a value, after which it is no matter what comes."""
_BLANK = re.compile(r"[ \t]*")
_LINE_ENDS = "\r\n<;{"
"""What ends a line behind a call: its end, a tag, or another call."""
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class Call(Struct, frozen=True):
    """One call. `arguments` is a JSON object as text, to the letter as the model wrote it."""

    name: str
    arguments: str


def calls_in(value: str) -> list[Call]:
    """The calls that a JSON value is or holds, in order; none if it is anything else. `value` is valid JSON."""
    return list(_calls(value.encode(errors="surrogatepass"), _MAX_NESTING))


def _calls(value: bytes, depth: int) -> Iterator[Call]:
    value = value.strip()
    try:
        if value.startswith(b"["):
            for item in _decode_array(value):
                if depth:
                    yield from _calls(bytes(item), depth - 1)
        elif value.startswith(b"{"):
            yield from _calls_of_object(_decode_object(value), depth)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return


def _calls_of_object(members: dict[str, Raw], depth: int) -> Iterator[Call]:
    call = _call(members)
    if call is not None:
        yield call
    elif depth:
        for key in _CONTAINERS:
            if key in members:
                yield from _calls(bytes(members[key]), depth - 1)


def _call(members: dict[str, Raw]) -> Call | None:
    if not members.keys() <= _KEYS:
        return None
    name = next((_text(members[key]) for key in _NAMES if key in members), "")
    said = next((members[key] for key in ARGUMENT_KEYS if key in members), None)
    if said is None or not (0 < len(name) <= MAX_NAME_CHARS and name.isprintable()):
        return None
    arguments = bytes(said).decode()
    if arguments.startswith('"'):  # encoded twice
        arguments = _text(said)
    if arguments.strip() in ("", "null"):
        arguments = "{}"
    return Call(name, arguments) if kind_of(arguments) == "object" else None


def _text(value: Raw) -> str:
    return _decode_text(bytes(value)) if bytes(value).startswith(b'"') else ""


def hand_on(choice: int, index: int, call: Call, rules: CallRules, out: list[Segment]) -> int:
    """Make events of a whole call that was found in text; returns the index of the last call."""
    if call.name not in rules.tools and rules.strips_unasked:
        out.append(Dropped("unasked"))
        return index
    source = "rescued" if call.name in rules.tools else "invalid"
    out.append(CallStart(choice, index + 1, call.name, None, source))
    if call.arguments:
        out.append(CallArguments(choice, index + 1, call.arguments))
    return index + 1


class BareCall:
    """`feed` it a value from its bracket on until it is `done`; what it gives back is not its own.

    plain: so many characters of what was given back are the value itself, which was no call: text. is_json: it was
    JSON of another kind. index: of the last call. inline: something stands before it in its line.
    """

    literal = ""

    def __init__(
        self,
        choice: int,
        rules: CallRules,
        index: int,
        tags: Scanner,
        inline: bool = False,
    ) -> None:
        self.done = False
        self.plain = 0
        self.is_json = False
        self.may_be_python = True
        self.index = index
        self._choice = choice
        self._rules = rules
        self._is_inline = inline
        self._tags = tags
        self._scan: JSONScanner | Brackets = JSONScanner(_UNIQUE, _KEYS)
        self._raw: list[str] = []
        self._head: str | None = ""  # of loose forms: the beginning, until it is known to be one
        self._is_python = False
        self._whole: list[Call] | None = (
            None  # the value is whole, and these are its calls; none: a broken one
        )
        self._blank = ""  # behind the whole value
        self._ahead = ""  # behind that: what may become a tag
        self._dropped: DroppedText | None = None
        self._nesting = 0  # of a dropped value: brackets that are open, wherever they stand
        self._is_blank = False  # of a dropped value: only white space since the line began

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text; what is given back stands behind the value, or is the value, or is to be fed again."""
        if self._dropped is not None:
            return self._in_dropped(self._dropped, text)
        if self._whole is not None:
            return self._behind(text, out)
        if self._head is not None and not self._is_strict:
            return self._in_head(text)
        scan, fault = self._scan, None
        before = scan.size
        try:
            scan.feed(text[: self._longest - before])
        except NotJSON as error:
            fault = error
        at = scan.size - before
        self._raw.append(text[:at])
        if fault is None:
            if scan.done:
                return self._end(text[at:], out)
            if scan.size < self._longest:
                return ""
        elif self._is_strict and not isinstance(fault, OtherKey) and (self._is_inline or not self._is_meant):
            raw, self._raw, self._scan = "".join(self._raw), [], Brackets()
            return raw + text[at:]
        return self._fault(text[at:], out)

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here, or something else interrupted it. Text to look at again."""
        self.done = True
        if self._whole is not None:
            self._hand_on(out)
            return self._ahead
        is_cut, raw = reason in ("length", ""), "".join(self._raw)
        has_begun = _SAID_KEY.search(raw) is not None if self._is_strict else self._names_a_tool(raw)
        if self._dropped is not None or (is_cut and has_begun):
            return (
                ""  # the reply was cut off before this could be distinguished from a call: it is not spoken
            )
        if self._is_meant:
            out.append(Dropped())
            return ""
        return self._as_text()

    @property
    def raw(self) -> str:
        """What was taken, and may be a call."""
        return "".join(self._raw)

    @property
    def is_broken(self) -> bool:
        """Whether it is known to be no call, and is dropped to its end."""
        return self._dropped is not None

    @property
    def half_tag(self) -> str:
        """The end of what it drops, which may become a think tag."""
        return "" if self._dropped is None else self._dropped.held

    @property
    def is_over(self) -> bool:
        """Whether a whole call was read."""
        return self._whole is not None and self._dropped is None

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open in what it drops."""
        return self._dropped is not None and self._dropped.is_thinking

    @property
    def _is_strict(self) -> bool:
        return isinstance(self._scan, JSONScanner)

    @property
    def _longest(self) -> int:
        is_short = self._is_inline and not (self._is_strict or self._is_python)
        return _LONGEST_LOOSE if is_short else LONGEST_BARE

    def _in_head(self, text: str) -> str:
        """The beginning of a loose form, until it is known to be one: then all of it is to be fed again."""
        for at, char in enumerate(text, 1):
            may_be = self._may_be_loose(char)
            if may_be and self._head is not None:
                continue
            if not may_be:  # what shows that is not a part of it, and may begin a call
                own = max(at - 1, 0 if self._raw else 1)
                self._raw.append(text[:own])
                self.done = True
                return self._as_text() + text[own:]
            self._raw.append(text[:at])
            head, self._raw = "".join(self._raw), []
            return head + text[at:]
        self._raw.append(text)
        return ""

    def _may_be_loose(self, char: str) -> bool:
        """Whether a loose form may still be a call, by its beginning up to this character."""
        assert self._head is not None
        head = self._head = self._head + char
        is_object = _OBJECT_HEAD.match(head)
        self._is_python = is_object is None
        if is_object is not None:
            key = is_object["key"] or ""
            if is_object["colon"] and key in _KEYS:
                self._head = None
                return True
            return is_object.end() == len(head) <= _LONGEST_HEAD and key in _KEYS_BEGUN
        found = _CALLS_HEAD.match(head)
        assert found is not None
        return self._may_be_python(found, len(head))

    def _may_be_python(self, head: re.Match[str], size: int) -> bool:
        """Inside a line only the request's own tools are looked for; at its beginning, any call but one with arguments by position."""
        name, tools = head["name"] or "", self._rules.tools
        if not self.may_be_python and name:
            return False
        looks_called = head["named"] or head["empty"]
        if head["open"] and (name in tools or (looks_called and not self._is_inline)):
            self._head = None
            return True
        may_go_on = head.end() == size <= _LONGEST_HEAD
        return may_go_on and (not self._is_inline or (not head["open"] and tools.may_become(name)))

    def _end(self, rest: str, out: list[Segment]) -> str:
        """The value is whole."""
        raw, tools = "".join(self._raw), self._rules.tools
        if self._is_python:
            calls = [Call(*call) for call in python_calls(raw)]
            if all(call.arguments == "{}" and call.name not in tools for call in calls):
                calls = []  # `[Sources()]`
        else:
            calls = calls_in(raw) if self._is_strict else []
        is_broken = not calls and not self._is_strict and self._is_meant
        if not (is_broken or (calls and (self._rules.strips_unasked or all(c.name in tools for c in calls)))):
            self.done = True
            return self._as_text() + rest
        self._whole = calls
        if self._is_inline or self._is_python:
            return self._behind(rest, out)
        self._hand_on(out)
        return rest

    def _behind(self, text: str, out: list[Segment]) -> str:
        """What follows in the line decides: with words behind it, it is an example."""
        text, self._ahead = self._ahead + text, ""
        blank = _BLANK.match(text)
        assert blank is not None
        self._blank += blank[0]
        rest = text[blank.end() :]
        if not rest and len(self._blank) <= _LONGEST_BLANK:
            return ""
        if not rest or rest[0] in _LINE_ENDS or self._tags.match(rest):
            self._hand_on(out)
            return rest
        if self._tags.may_become(rest):
            self._ahead = rest
            return ""
        self.done = True
        return self._as_text() + self._blank + rest

    def _hand_on(self, out: list[Segment]) -> None:
        self.done = True
        for call in self._whole or ():
            self.index = hand_on(self._choice, self.index, call, self._rules, out)
        if not self._whole:
            self.done = not self._drop(out).is_thinking

    @property
    def _is_meant(self) -> bool:
        """Whether what has come of it can only be meant as a call."""
        raw = "".join(self._raw)
        if self._is_strict:
            return _SAID_NAME.search(raw) is not None and _SAID_ARGUMENTS.search(raw) is not None
        if self._is_python or self._is_inline:
            return self._names_a_tool(raw) and (self._is_python or _LOOSE_ARGUMENTS.search(raw) is not None)
        return _LOOSE_NAME.search(raw) is not None and _LOOSE_ARGUMENTS.search(raw) is not None

    def _names_a_tool(self, raw: str) -> bool:
        """Whether a loose form, or one in Python's, is about a tool of the request."""
        if self._head is not None:
            return False
        if self._is_python:
            head = _CALLS_HEAD.match(raw)
            return head is not None and head["name"] in self._rules.tools
        return any(name[1] in self._rules.tools for name in _LOOSE_NAME.finditer(raw))

    def _fault(self, rest: str, out: list[Segment]) -> str:
        """With `rest` it is no JSON, or no call. What was meant as one is dropped with the rest of it."""
        if self._is_meant:
            self._drop(out)
            return rest
        self.done = True
        return self._as_text() + rest

    def _drop(self, out: list[Segment]) -> DroppedText:
        out.append(Dropped())
        raw = "".join(self._raw)
        self._dropped = dropped = DroppedText(self._tags)
        self._nesting = _open_brackets(dropped.begin(raw))
        self._is_blank = not raw[raw.rfind("\n") + 1 :].strip()
        return dropped

    def _as_text(self) -> str:
        raw = "".join(self._raw)
        self.plain = len(raw)
        self.is_json = '"' in raw and (self._is_strict or self._head is None)
        return raw

    def _in_dropped(self, dropped: DroppedText, text: str) -> str:
        """Up to the end of a line, or of a thought, where no bracket is open, or to an empty line."""
        for own, behind in dropped.read(text):
            if not own:
                self.done, self._is_blank = self._nesting <= 0, False
            if self.done:
                return behind
            at = 0
            while (end := own.find("\n", at)) >= 0:
                self._take(own[at:end])
                if self._is_blank or self._nesting <= 0:
                    self.done = True
                    return own[end:] + behind
                self._is_blank, at = True, end + 1
            self._take(own[at:])
        return ""

    def _take(self, line: str) -> None:
        """Of a dropped value, a line or a part of one."""
        self._nesting += _open_brackets(line)
        self._is_blank = self._is_blank and not line.strip()


def _open_brackets(text: str) -> int:
    return text.count("{") + text.count("[") - text.count("}") - text.count("]")
