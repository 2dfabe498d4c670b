"""Where a JSON value ends in a text that arrives in pieces, and what a whole one is. Pure; linear in the text."""

import re
from itertools import accumulate
from math import isinf

import msgspec

from gates.contracts.markers import SEAMS

MAX_DEPTH = 128
"""Deepest nesting that is accepted: serde_json's default, so what most strict readers accept."""
MAX_DIGITS = 308
"""Longest run of digits: with one more a whole number is no double, and the gateway would refuse it in a history."""
WHITESPACE = " \t\r\n"

_STRICT = re.compile(rf"[\s,:\-+.0-9eEtrufalsn{SEAMS}]*")
_LOOSE = re.compile(r"[^\"'{}\[\]()]*")
_IN_STRING = {'"': re.compile(r'[^"\\\n]*'), "'": re.compile(r"[^'\\\n]*")}
_PAIRS = {"}": "{", "]": "[", ")": "("}


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
        return (
            None if self.quote else "".join({"{": "}", "[": "]", "(": ")"}[c] for c in reversed(self.stack))
        )

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
        elif char in _PAIRS and self.stack.endswith(_PAIRS[char]):
            self.stack = self.stack[:-1]
            self.done = not self.stack
        else:
            raise NotJSON(f"unexpected {char!r}", at)
        return at + 1


_LONG_NUMBER = re.compile(rf"(?<![0-9])[0-9]{{{MAX_DIGITS + 1}}}")
_WITH_EXPONENT = re.compile(r"(?<![0-9.])[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"{}[]")
_STEPS = [{ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}.get(byte, 0) for byte in range(256)]
_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}


def kind_of(text: str) -> str:
    """The JSON type of a whole text: object, array, string, boolean, null, number; "" if it is no JSON.

    Nested deeper than MAX_DEPTH, with a number that is no double, or with half of a surrogate pair it is no JSON
    here: nobody could read it, and the gateway would refuse it in a history.
    """
    raw = text.encode(errors="surrogatepass").strip(WHITESPACE.encode())
    bare = _STRING.sub(b"", raw)
    brackets = bare.translate(None, _NO_BRACKETS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH:
        return ""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
        raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    numbers = bare.decode("latin-1")
    if _LONG_NUMBER.search(numbers) or any(isinf(float(n[0])) for n in _WITH_EXPONENT.finditer(numbers)):
        return ""
    return _KINDS.get(chr(raw[0]), "number")
