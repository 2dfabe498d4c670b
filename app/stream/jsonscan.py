"""A strict JSON parser that can be fed in pieces and says how far the text is certain.

It builds nothing. It answers three questions about a growing text: is it still the beginning of
valid JSON, is the value complete, and up to which offset can the text no longer change its
meaning. A number or a literal is certain only once something follows it (`5` may become `50306`,
vLLM #20678), an escape only once it is whole. Grammar: RFC 8259.
"""

import json
import re
from enum import Enum, auto

_SCALAR = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false|null")
_SCALAR_CHARS = frozenset("-+.0123456789eEtrufalsn")
_WHITESPACE = frozenset(" \t\r\n")


class NotJSON(Exception):
    """The text can no longer become valid JSON."""


class _Want(Enum):
    VALUE = auto()
    VALUE_OR_CLOSE = auto()  # just after [
    KEY = auto()
    KEY_OR_CLOSE = auto()  # just after {
    COLON = auto()
    COMMA_OR_CLOSE = auto()
    NOTHING = auto()  # the value is complete


class Span:
    """Where a member's value stands in the text; `end` is -1 while it is open."""

    __slots__ = ("end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = -1


class JSONScanner:
    """Feed it characters; read `done`, `certain` and `members` in between.

    `certain` is an offset: the text before it is final. `members` maps each key of the outermost
    object to the span of its value, in the order of the text.
    """

    def __init__(self) -> None:
        self.certain = 0
        self.done = False
        self.members: dict[str, Span] = {}
        self._chars: list[str] = []
        self._stack: list[str] = []
        self._want = _Want.VALUE
        self._in_string = False
        self._is_key = False
        self._key_start = 0
        self._member: Span | None = None
        self._escape = 0  # characters of an escape still to come; 6 stands for "just a backslash"
        self._scalar = ""

    def text(self, start: int, end: int) -> str:
        """The text between two offsets."""
        return "".join(self._chars[start:end])

    def feed(self, char: str) -> None:
        """Take one character. Raises NotJSON; after `done` only whitespace is allowed."""
        if self._in_string:
            self._string(char)
        elif self._scalar:
            self._continue_scalar(char)
        else:
            self._structure(char)
        self._chars.append(char)
        if not (self._escape or self._scalar):
            self.certain = len(self._chars)

    def _string(self, char: str) -> None:
        if self._escape:
            self._escaped(char)
        elif char == "\\":
            self._escape = 6
        elif char == '"':
            self._in_string = False
            if self._is_key:
                self._key_ended()
            else:
                self._value_ended(len(self._chars) + 1)
        elif char < " ":
            raise NotJSON("a control character inside a string")

    def _escaped(self, char: str) -> None:
        if self._escape == 6:
            if char not in '"\\/bfnrtu':
                raise NotJSON(f"an unknown escape: \\{char}")
            self._escape = 4 if char == "u" else 0
        elif char in "0123456789abcdefABCDEF":
            self._escape -= 1
        else:
            raise NotJSON("a broken \\u escape")

    def _continue_scalar(self, char: str) -> None:
        if char in _SCALAR_CHARS:
            self._scalar += char
            return
        if not _SCALAR.fullmatch(self._scalar):
            raise NotJSON(f"neither a number nor a literal: {self._scalar[:20]}")
        self._scalar = ""
        self._value_ended(len(self._chars))
        self._structure(char)

    def _structure(self, char: str) -> None:
        if char in _WHITESPACE:
            return
        want = self._want
        if want in (_Want.VALUE, _Want.VALUE_OR_CLOSE) and (char in '"{[' or char in _SCALAR_CHARS):
            self._value_starts(char)
        elif want in (_Want.KEY, _Want.KEY_OR_CLOSE) and char == '"':
            self._in_string = self._is_key = True
            self._key_start = len(self._chars)
        elif want is _Want.COLON and char == ":":
            self._want = _Want.VALUE
        elif want is _Want.COMMA_OR_CLOSE and char == ",":
            self._want = _Want.KEY if self._stack[-1] == "{" else _Want.VALUE
        elif char in "}]" and self._may_close(char):
            self._stack.pop()
            self._value_ended(len(self._chars) + 1)
        else:
            raise NotJSON(f"unexpected {char!r}")

    def _value_starts(self, char: str) -> None:
        if self._member and self._member.start < 0:
            self._member.start = len(self._chars)
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._stack.append(char)
            self._want = _Want.KEY_OR_CLOSE if char == "{" else _Want.VALUE_OR_CLOSE
        else:
            self._scalar = char

    def _key_ended(self) -> None:
        self._is_key = False
        self._want = _Want.COLON
        if self._stack == ["{"]:
            key = json.loads("".join(self._chars[self._key_start :]) + '"')
            self._member = self.members[key] = Span(-1)

    def _value_ended(self, end: int) -> None:
        if len(self._stack) == 1 and self._member:
            self._member.end = end
            self._member = None
        self._want = _Want.COMMA_OR_CLOSE if self._stack else _Want.NOTHING
        self.done = not self._stack

    def _may_close(self, char: str) -> bool:
        if not self._stack or self._stack[-1] != {"}": "{", "]": "["}[char]:
            return False
        empty = _Want.KEY_OR_CLOSE if char == "}" else _Want.VALUE_OR_CLOSE
        return self._want in (_Want.COMMA_OR_CLOSE, empty)
