"""Where a JSON value ends in a text that arrives in pieces, and what a whole one is. Pure; linear in the text."""

import json
import re
from math import isinf

import msgspec

from gates.contracts import strict_json
from gates.contracts.markers import SEAMS

MAX_DEPTH = 128
"""Deepest nesting that is accepted: serde_json's default, so what most strict readers accept."""
WHITESPACE = " \t\r\n"

_STRICT = re.compile(rf"[\s,:\-+.0-9eEtrufalsn{SEAMS}]*")
_LOOSE = re.compile(r"[^\"'{}\[\]()]*")
_IN_STRING = {'"': re.compile(r'[^"\\\n]*'), "'": re.compile(r"[^'\\\n]*")}
_CLOSERS = {"{": "}", "[": "]", "(": ")"}


class NotJSON(Exception):
    """The text can no longer become a value, or is nested deeper than MAX_DEPTH. `at`: where that shows."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class ValueScanner:
    """`feed` it the text of an object or an array until it is `done`. It matches brackets outside strings and builds nothing.

    loose: Python's literals and calls, too (single quotes, names, round brackets).
    """

    def __init__(self, loose: bool = False) -> None:
        self.done = False
        self.stack = ""
        self.quote = ""  # of the string that is open
        self._is_escaped = False
        self._loose = loose

    def feed(self, text: str, at: int = 0) -> int:
        """Take `text` from `at` on; returns where the value ends, or the text's length. Raises NotJSON."""
        size = len(text)
        while at < size and not self.done:
            at = self._string(text, at) if self.quote else self._structure(text, at)
        return at

    def missing(self) -> str | None:
        """The brackets that would complete it; None inside a string."""
        return None if self.quote else "".join(map(_CLOSERS.__getitem__, reversed(self.stack)))

    def _string(self, text: str, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = text[at] in SEAMS
            return at + 1
        run = _IN_STRING[self.quote].match(text, at)
        assert run is not None
        at = run.end()
        if at == len(text):
            return at
        if text[at] == "\n" and not self._loose:
            raise NotJSON("a line break inside a string", at)
        if text[at] == "\\":
            self._is_escaped = True
        elif text[at] == self.quote:
            self.quote = ""
        return at + 1

    def _structure(self, text: str, at: int) -> int:
        run = (_LOOSE if self._loose else _STRICT).match(text, at)
        assert run is not None
        at = run.end()
        if at == len(text):
            return at
        char = text[at]
        if char == '"' or (char == "'" and self._loose):
            self.quote = char
        elif char in "{[" or (char == "(" and self._loose):
            if len(self.stack) == MAX_DEPTH:
                raise NotJSON(f"nested deeper than {MAX_DEPTH}", at)
            self.stack += char
        elif self.stack and char == _CLOSERS[self.stack[-1]]:
            self.stack = self.stack[:-1]
            self.done = not self.stack
        else:
            raise NotJSON(f"unexpected {char!r}", at)
        return at + 1


_KINDS = {
    dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null", int: "integer", float: "number"
}  # fmt: skip


def _double(digits: str) -> float:
    if isinf(number := float(digits)):
        raise ValueError("no double")
    return number


_decode = msgspec.json.Decoder(float_hook=_double).decode


def kind_of(text: str) -> str:
    """The JSON type of a whole text: object, array, string, boolean, null, integer (1.0 is one), number; "" if it is no JSON.

    Nested deeper than MAX_DEPTH, with a number that is no double, or with half of a surrogate pair it is no JSON
    here: nobody could read it, and the gateway would refuse it in a history.
    """
    bare = text.strip(WHITESPACE)
    try:
        if bare.startswith(("{", "[")):
            ValueScanner().feed(bare)
        value = _decode(bare)
    except (NotJSON, msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    return "integer" if type(value) is float and value.is_integer() else _KINDS[type(value)]


def last_values(text: str) -> str:
    """A whole value in which an object repeats a key, with that key's last value alone; any other text as it is."""
    try:
        strict_json.loads(text, unique_keys=True)
    except ValueError:
        return json.dumps(json.loads(text)) if kind_of(text) else text
    return text
