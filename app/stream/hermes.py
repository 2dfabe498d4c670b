"""One hermes call: `{"name": …, "arguments": {…}}`, whose end and whose first fault are found as it arrives.

The arguments are handed on verbatim: numbers keep their digits, and escapes stay escapes. Brackets are matched by a strict scanner that knows strings, so neither a
brace nor `</tool_call>` inside a string ends anything. `parameters`, `args` and the like are read
as `arguments`; a second set of them, or a second name, makes the text no call, on any cut.
"""

import json

from app.stream.jsonscan import WHITESPACE, JSONScanner, NotJSON, Span, kind_of

MAX_CALL_CHARS = 1 << 20
"""Longest text of one call; as much as one event may hold (MAX_EVENT_BYTES)."""
MAX_NAME_CHARS = 128
"""Longest name of a function: what requests may declare."""

ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")
"""Names under which models write a call's arguments."""
_KEYS = {"name": "name", **dict.fromkeys(ARGUMENT_KEYS, "arguments")}
_NO_ARGUMENTS = ("", "null")


class NotACall(Exception):
    """The text only looked like a tool call."""


class HermesCall:
    """Feed it the text after `<tool_call>` until it is `done`; then read `name` and `arguments`."""

    wrapper_closed = False

    def __init__(self) -> None:
        self._scan = JSONScanner(_KEYS)
        self._name: str | None = None
        self._name_read = False
        self._too_long = False

    @property
    def done(self) -> bool:
        """The outer object is complete."""
        return self._scan.done and not self._too_long

    @property
    def name(self) -> str | None:
        """The function's name, once it is final and can be one."""
        if not self._name_read:
            span = self._scan.members.get("name")
            if span is not None and span.end >= 0:
                self._name_read = True
                self._name = self._read_name(span)
        return self._name

    def feed(self, text: str, at: int = 0) -> int:
        """Take `text` from `at` on, up to the end of the call; returns where that is.

        Raises NotACall when the text cannot become a call any more.
        """
        try:
            end = self._scan.feed(text, at)
        except NotJSON as error:
            raise NotACall(str(error)) from error
        if self._scan.size > MAX_CALL_CHARS:
            self._too_long = True
            raise NotACall(f"longer than {MAX_CALL_CHARS} characters")
        if self.done:
            self._check()
        return end

    @property
    def arguments(self) -> str:
        """The arguments as a JSON object; of a call that was cut only what is certain of them.

        None at all, `null` and nothing encoded twice are an empty object; `_check` refuses anything else.
        """
        span = self._arguments()
        if span is None:
            return "{}" if self.done else ""
        if span.first == "{":
            return self._scan.text(span.start, span.end if span.end >= 0 else self._scan.certain)
        text = self._encoded_twice(span) if span.end >= 0 else ""
        return "{}" if span.end >= 0 and text.strip(WHITESPACE) in _NO_ARGUMENTS else text

    def close(self, reason: str) -> None:
        """The reply ended here. Raises NotACall unless the arguments were complete or were cut."""
        span = self._arguments()
        if span is not None and span.end >= 0:
            self._check()
        elif reason != "length":
            raise NotACall("the reply ended inside the call")

    def _arguments(self) -> Span | None:
        span = self._scan.members.get("arguments")
        return span if span is not None and span.start >= 0 else None

    def _read_name(self, span: Span) -> str | None:
        """A printable string of a bounded length: half of a surrogate pair is none."""
        if span.first != '"' or span.end - span.start > 6 * MAX_NAME_CHARS + 2:
            return None
        name: str = json.loads(self._scan.text(span.start, span.end))
        return name if name.isprintable() and len(name) <= MAX_NAME_CHARS and name else None

    def _encoded_twice(self, span: Span) -> str:
        """The text in a string; "" for anything else."""
        if span.first != '"':
            return ""
        text: str = json.loads(self._scan.text(span.start, span.end))
        return text

    def _check(self) -> None:
        if self.name is None:
            raise NotACall("no name")
        span = self._arguments()
        if span is None or span.first in ("{", "n"):
            return
        text = self._encoded_twice(span)
        if text.strip(WHITESPACE) in _NO_ARGUMENTS and span.first == '"':
            return
        if kind_of(text) != "object":
            raise NotACall("the arguments are no object")
