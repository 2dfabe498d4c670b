"""A call within a thought, followed only as far as to know whether a place in it is inside an argument.

A closing tag there may be a part of the argument, or the end of a thought that broke off in the middle of a call. What
comes next tells: behind the end of an argument goes on what only a call has. Until then the tag is in doubt
(`app.stream.segmenter`). Strings stand in either kind of quotes, and hold no line end; brackets, keys and separators
follow each other as in JSON, JSON with loose quotes or a call of a function. A parameter in XML stands behind its
function's name. Prose is over after two words.
"""

import re
from collections.abc import Callable

from app.stream.hermes import MAX_CALL_CHARS
from app.stream.jsonscan import MAX_DEPTH
from app.stream.tags import CALL_ENDERS, CALL_OPENERS

LONGEST_HEADER = 128
"""Characters between a tag and the first bracket behind it: a name, where a family has one there."""
_MOST_SLASHES = 3
"""Backslashes before a quote that begins a string: JSON inside a string of JSON."""
_CLOSES = {"{": "}", "[": "]", "(": ")"}
_ENDS_OF = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}
_HEADER = re.compile(r"(?P<word>\w+)|(?P<bracket>[{\[(])|(?P<other>[^\w{\[(]+)")
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<word>[\w.+$/@-]+)|(?P<bracket>[{\[(])|(?P<end>[}\])])|(?P<mark>[,:;=])"
    r"|(?P<slash>\\+)|(?P<quote>[\"'\u201c\u2018])|(?P<other>.)"
)
_IN_STRING = re.compile(
    r"(?P<line>[\r\n])|(?P<slash>\\+)|(?P<quote>[\"'\u201d\u2019])|(?P<other>[^\r\n\\\"'\u201d\u2019]+)"
)
_LABEL_END = re.compile(r"[>\uff1e\n;]")
_FUNCTION = re.compile(r"\s*[\"']?[A-Za-z_][\w.:/-]*[\"']?\s*(?:&gt|&#62|&#x3e)?", re.IGNORECASE)


class ThoughtCall:
    """`feed` it the text behind the tag of a call, and each `tag` in it.

    role: of that tag; "" where a call begins by its bracket. over: it is no call, or its end has come. went_on: since
    this was last set to False, an argument has ended, and the call gone on.
    """

    def __init__(self, role: str) -> None:
        self.over = False
        self.went_on = False
        self._is_bare = not role
        self._size = 0
        self._state: Callable[[ThoughtCall, str, int, int], int]
        self._state = ThoughtCall._in_label if role == "function" else ThoughtCall._in_header
        self._begun = 0  # characters of the header, or of a name in XML
        self._label: list[str] | None = (
            [] if role == "function" else None
        )  # a function's name, until a parameter comes
        self._word = False  # the last character belongs to a word
        self._brackets: list[str] = []  # those that will close what is open
        self._wants_item = True
        self._has_key = False
        self._quote = ""  # which ends the string
        self._level = 0  # backslashes before it
        self._slashes = 0  # those that were read last

    @property
    def inside(self) -> bool:
        """Whether this place is in a string of JSON, or in the value of a parameter."""
        return not self.over and (self._quote != "" or self._state is ThoughtCall._in_value)

    def feed(self, text: str, at: int, end: int) -> int:
        """Take text without a tag, from `at` to `end`. Returns where it was over, or `end`."""
        begin, least = at, min(end, at + MAX_CALL_CHARS - self._size)
        while at < least and not self.over:
            at = self._state(self, text, at, least)
        self._size += at - begin
        self.over = self.over or least < end
        return at

    def tag(self, role: str) -> bool:
        """Take a tag of this role; returns whether it stands inside an argument, and says nothing there."""
        if self._quote:
            self._slashes = 0
            return True
        if self._state is ThoughtCall._in_value:
            return self._tag_in_value(role)
        if role == "parameter" and self._state is ThoughtCall._in_body:
            self._state, self._label, self._begun = ThoughtCall._in_key, None, 0
        elif role in CALL_ENDERS:
            self.went_on = True
            self.over = role == "call_end" or bool(self._brackets)
        else:
            self.over = True
        return False

    def _tag_in_value(self, role: str) -> bool:
        if role in CALL_ENDERS or role == "parameter":
            self.went_on = True
            self.over = role == "call_end"
            self._state = {"parameter": ThoughtCall._in_key, "parameter_end": ThoughtCall._in_body}.get(
                role, ThoughtCall._in_header
            )
            self._begun = 0
            return False
        self.over = role in CALL_OPENERS  # of another call: this one has broken off
        return not self.over

    # Each state takes text from `at` to `end`, or the first part of it, and returns where the next one starts.

    def _in_header(self, text: str, at: int, end: int) -> int:
        token = _HEADER.match(text, at, end)
        assert token is not None
        self._begun += token.end() - at
        if token.lastgroup == "bracket" and (text[at] != "(" or self._word):
            self._state = ThoughtCall._in_brackets
            self._open(text[at])
        self._word = token.lastgroup == "word"
        self.over = self._begun > LONGEST_HEADER
        return token.end()

    def _in_brackets(self, text: str, at: int, end: int) -> int:
        if self._quote:
            return self._in_string(text, at, end)
        token = _TOKEN.match(text, at, end)
        assert token is not None
        kind, char, was_word = token.lastgroup, text[at], self._word
        self._word = kind == "word"
        if self._slashes and kind not in ("slash", "quote"):
            self.over = True
        elif kind == "word":
            self.over = not (self._wants_item or was_word)
            self._wants_item = False
        elif kind == "bracket":
            self.over = not (self._wants_item or was_word) or len(self._brackets) >= MAX_DEPTH
            self._open(char)
        elif kind == "end":
            self._close(char)
        elif kind == "mark":
            self._mark(char)
        elif kind == "slash":
            self._slashes += token.end() - at
            self.over = self._slashes > _MOST_SLASHES
        elif kind == "quote":
            self.over = not self._wants_item
            self._quote, self._level, self._slashes = _ENDS_OF[char], self._slashes, 0
        else:
            self.over = kind == "other"
        return at + 1 if self.over else token.end()

    def _open(self, bracket: str) -> None:
        self._brackets.append(_CLOSES[bracket])
        self._wants_item, self._has_key = True, False

    def _close(self, bracket: str) -> None:
        self.over = self._brackets[-1] != bracket
        if self.over:
            return
        self._brackets.pop()
        self._wants_item, self._has_key, self.went_on = False, True, True
        if not self._brackets:
            self._state, self._begun = ThoughtCall._in_header, 0
            self.over = self._is_bare

    def _mark(self, mark: str) -> None:
        is_key = mark in ":="
        self.over = self._wants_item or (is_key and self._has_key)
        self.went_on = self.went_on or (is_key and not self.over)
        self._wants_item, self._has_key = True, is_key

    def _in_string(self, text: str, at: int, end: int) -> int:
        token = _IN_STRING.match(text, at, end)
        assert token is not None
        kind, before = token.lastgroup, self._slashes
        self._slashes = before + token.end() - at if kind == "slash" else 0
        self.over = kind == "line"
        is_escaped = before > self._level if self._level else before % 2 == 1
        if kind == "quote" and text[at] == self._quote and not is_escaped:
            self._quote, self._wants_item = "", False
        return token.end()

    def _in_label(self, text: str, at: int, end: int) -> int:
        """A function's name."""
        at = self._to_end_of_label(text, at, end)
        if self._state is ThoughtCall._in_body:
            self.over = _FUNCTION.fullmatch("".join(self._label or ())) is None
        return at

    def _in_key(self, text: str, at: int, end: int) -> int:
        """A parameter's name."""
        at = self._to_end_of_label(text, at, end)
        if self._state is ThoughtCall._in_body:
            self._state = ThoughtCall._in_value
        return at

    def _to_end_of_label(self, text: str, at: int, end: int) -> int:
        most = min(end, at + LONGEST_HEADER - self._begun)
        match = _LABEL_END.search(text, at, most)
        stop = most if match is None else match.start()
        if self._label is not None:
            self._label.append(text[at:stop])
        self._begun += stop - at
        if match is not None:
            self._state = ThoughtCall._in_body
            return stop + 1
        self.over = self._begun == LONGEST_HEADER
        return stop

    def _in_body(self, text: str, at: int, end: int) -> int:
        """Between parameters; before the first one stands no prose."""
        rest = text[at:end].lstrip()
        if self._label is None or not rest:
            return end
        self._state, self._begun, self._word = ThoughtCall._in_header, 0, False
        self.over = rest[0] != "{"
        return end - len(rest)

    def _in_value(self, text: str, at: int, end: int) -> int:
        return end
