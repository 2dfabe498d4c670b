"""Tool calls in JSON that no tag announces: `{"name": …, "arguments": {…}}` at the start of a line.

Models that were trained for another engine's parser write them so, alone or in an array. A JSON value that
begins a line is held until it is whole, or shown to be no call: by its first key for most JSON, by its
second character for a citation. What is no call is text, to the letter.
"""

import re
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from app.stream.events import CallArguments, CallStart, Dropped, Segment
from app.stream.hermes import MAX_NAME_CHARS
from app.stream.jsonscan import JSONScanner, NotJSON, kind_of
from app.stream.schema import CallRules

LONGEST_BARE = 1 << 16
"""Characters of a JSON value that are held until it is known whether it is a call."""

_NAMES = ("name", "function", "tool", "tool_name", "function_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")
_CONTAINERS = ("function", "function_call", "tool_call", "tool_calls")
_BESIDE = ("type", "id", "call_id", "index")
_KEYS = frozenset({*_NAMES, *_ARGUMENTS, *_CONTAINERS, *_BESIDE})
_UNIQUE = {"name": "name", "arguments": "arguments", "parameters": "arguments"}
_MAX_NESTING = 3
"""`{"tool_calls": [{"function": {…}}]}`: no form is nested deeper."""

_SAID_NAME = re.compile(rf'"(?:{"|".join(_NAMES)})"\s{{0,64}}:\s{{0,64}}"[^"\\]{{1,{MAX_NAME_CHARS}}}"')
_SAID_ARGUMENTS = re.compile(rf'"(?:{"|".join(_ARGUMENTS)})"\s{{0,64}}:')
_SAID_KEY = re.compile(r'"\s{0,64}:')
_QUOTE = re.compile("[\"']")
_SWAP = str.maketrans("\"'", "'\"")
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
    said = next((members[key] for key in _ARGUMENTS if key in members), None)
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
    """`feed` it a JSON value from its bracket on until it is `done`; what it gives back is not its own.

    plain: so many characters of what was given back are the value itself, which was no call: text. index: of
    the last call.
    """

    literal = ""

    def __init__(self, choice: int, rules: CallRules, index: int) -> None:
        self.done = False
        self.plain = 0
        self.index = index
        self._choice = choice
        self._rules = rules
        self._scan = JSONScanner(_UNIQUE, _KEYS)
        self._raw: list[str] = []
        self._is_swapped: bool | None = None  # the quotes are single; None: none has come
        self._is_dropped = False
        self._nesting = 0  # of a dropped value: brackets that are open, wherever they stand
        self._is_blank = False  # of a dropped value: only white space since the line began

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text; what is given back when the value is done stands behind it, or is the value."""
        if self._is_dropped:
            return self._in_dropped(text)
        before, is_json = self._scan.size, True
        try:
            self._scan.feed(self._with_double_quotes(text[: LONGEST_BARE - before]))
        except NotJSON:
            is_json = False
        at = self._scan.size - before
        self._raw.append(text[:at])
        if is_json and self._scan.done:
            self.done = True
            return self._whole(out) + text[at:]
        if is_json and self._scan.size < LONGEST_BARE:
            return ""
        return self._fault(text[at:], out)

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here, or something else interrupted it. Text to look at again."""
        self.done = True
        is_cut = reason in ("length", "")
        if self._is_dropped or (is_cut and _SAID_KEY.search("".join(self._raw))):
            return ""  # of a reply that was cut nobody knows what this was to be: it is not spoken
        if self._is_meant:
            out.append(Dropped())
            return ""
        return self._as_text()

    def _with_double_quotes(self, text: str) -> str:
        """Python writes its strings in single quotes: such a call is none, but it is to be known as one."""
        if self._is_swapped is None and (quote := _QUOTE.search(text)):
            self._is_swapped = quote[0] == "'"
        return text.translate(_SWAP) if self._is_swapped else text

    def _whole(self, out: list[Segment]) -> str:
        calls = calls_in(self._scan.text(0, self._scan.size))
        rules = self._rules
        if not calls or not (rules.strips_unasked or all(call.name in rules.tools for call in calls)):
            return self._as_text()
        for call in calls:
            if self._is_swapped:
                out.append(Dropped())
            else:
                self.index = hand_on(self._choice, self.index, call, rules, out)
        return ""

    @property
    def _is_meant(self) -> bool:
        """Whether what has come of it can only be meant as a call."""
        said = self._scan.text(0, self._scan.size)
        return _SAID_NAME.search(said) is not None and _SAID_ARGUMENTS.search(said) is not None

    def _fault(self, rest: str, out: list[Segment]) -> str:
        """With `rest` it is no JSON, or no call. What was meant as one is dropped with the rest of it."""
        if self._is_meant:
            out.append(Dropped())
            self._is_dropped, self._nesting = True, _open_brackets("".join(self._raw))
            return self._in_dropped(rest)
        self.done = True
        return self._as_text() + rest

    def _as_text(self) -> str:
        raw = "".join(self._raw)
        self.plain = len(raw)
        return raw

    def _in_dropped(self, text: str) -> str:
        """Up to a line end where no bracket is open, or to an empty line."""
        at = 0
        while True:
            end = text.find("\n", at)
            line = text[at:] if end < 0 else text[at:end]
            self._nesting += _open_brackets(line)
            self._is_blank = self._is_blank and not line.strip()
            if end < 0:
                return ""
            if self._is_blank or self._nesting <= 0:
                self.done = True
                return text[end:]
            self._is_blank, at = True, end + 1


def _open_brackets(text: str) -> int:
    return text.count("{") + text.count("[") - text.count("}") - text.count("]")
