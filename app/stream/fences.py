"""Code fences in text that arrives in pieces: a call inside a fence is an example, not a call."""

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class Fences:
    """Follows the lines of a reply and knows whether the next character stands in a fence.

    CommonMark's rule: a fence opens at the start of a line (three spaces at most before it); the
    info string of a backtick fence holds no backtick, so an inline ``` opens nothing.
    """

    def __init__(self) -> None:
        self._marker = ""  # the fence we are in, such as ``` or ~~~~
        self._line: str | None = ""  # the line so far; None once it cannot be a fence any more

    def feed(self, text: str) -> None:
        """Take text that has gone out."""
        head, newline, rest = text.partition("\n")
        self._extend(head)
        while newline:
            self._end_line()
            head, newline, rest = rest.partition("\n")
            self._extend(head)

    @property
    def inside(self) -> bool:
        """Whether the next character stands in a fence; an opening line counts at once."""
        return bool(self._marker) or self._opens()

    @property
    def line_may_open(self) -> bool:
        """Whether the current line could still become a fence: text on it must be fed."""
        return self._line is not None

    def _extend(self, part: str) -> None:
        if self._line is not None and part:
            line = self._line + part
            self._line = line if line.lstrip(" ")[:1] in ("`", "~", "") else None

    def _opens(self) -> bool:
        return self._match() is not None

    def _match(self) -> re.Match[str] | None:
        match = _FENCE.fullmatch(self._line) if self._line else None
        if match and match[1][0] == "`" and "`" in match[2]:
            return None
        return match

    def _end_line(self) -> None:
        match = self._match()
        if match and not self._marker:
            self._marker = match[1]
        elif match and match[1].startswith(self._marker) and not match[2].strip():
            self._marker = ""
        self._line = ""
