"""One hermes call: `{"name": …, "arguments": {…}}`, read as it arrives.

The arguments are handed on verbatim, as far as they are certain. Brackets are matched by a strict
scanner that knows strings, so neither a brace nor `</tool_call>` inside a string ends anything.
"""

import json

from app.stream.jsonscan import JSONScanner, NotJSON, Span


class NotACall(Exception):
    """The text only looked like a tool call."""


class HermesCall:
    """Feed it the characters after `<tool_call>`; read `name`, `take()` and `done` in between."""

    wrapper_closed = False

    def __init__(self) -> None:
        self._scan = JSONScanner()
        self._taken = -1  # offset up to which the arguments were handed out; -1 before the first

    @property
    def done(self) -> bool:
        """The outer object is complete."""
        return self._scan.done

    @property
    def name(self) -> str | None:
        """The function's name, once it is final."""
        span = self._scan.members.get("name")
        if span is None or span.end < 0:
            return None
        name = json.loads(self._scan.text(span.start, span.end))
        return name if isinstance(name, str) and name else None

    @property
    def committable(self) -> bool:
        """Whether what has been seen can, with a known name, only be a call."""
        span = self._arguments()
        return self.done or (span is not None and self._scan.text(span.start, span.start + 1) == "{")

    def feed(self, char: str) -> None:
        """Take one character. Raises NotACall when the text cannot become a call any more."""
        try:
            self._scan.feed(char)
        except NotJSON as error:
            raise NotACall(str(error)) from error
        if self.done:
            self._check()

    def take(self) -> str:
        """Argument text that became certain since the last time."""
        span = self._arguments()
        if span is None:
            return self._take_none()
        if self._scan.text(span.start, span.start + 1) != "{":
            return self._take_odd(span)
        start = span.start if self._taken < 0 else self._taken
        end = span.end if span.end >= 0 else self._scan.certain
        self._taken = max(start, end)
        return self._scan.text(start, end)

    def close(self, reason: str) -> None:
        """The reply ended here. Raises NotACall unless the arguments were complete or were cut."""
        span = self._arguments()
        complete = span is not None and span.end >= 0 and self.name is not None
        if not complete and reason != "length":
            raise NotACall("the reply ended inside the call")

    def _arguments(self) -> Span | None:
        members = self._scan.members
        span = members.get("arguments") or members.get("parameters")
        return span if span is not None and span.start >= 0 else None

    def _take_none(self) -> str:
        """A whole call without arguments has an empty object of them."""
        if not self.done or self._taken >= 0:
            return ""
        self._taken = 0
        return "{}"

    def _take_odd(self, span: Span) -> str:
        """`null`, or an object that was encoded twice; `_check` refuses anything else."""
        if span.end < 0 or self._taken >= 0:
            return ""
        self._taken = span.end
        value = json.loads(self._scan.text(span.start, span.end))
        return value if isinstance(value, str) else "{}"

    def _check(self) -> None:
        if self.name is None:
            raise NotACall("no name")
        span = self._arguments()
        if span is None:
            return
        value = json.loads(self._scan.text(span.start, span.end))
        if isinstance(value, str):
            value = _loads(value)
        if value is not None and not isinstance(value, dict):
            raise NotACall("the arguments are no object")


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
