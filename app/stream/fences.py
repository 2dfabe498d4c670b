"""Code fences in text that arrives in pieces: a call inside a fence is an example, but one whose fence is a tag is a call."""

import re

from app.stream.dropped_text import DroppedText, DroppingBlock
from app.stream.events import Dropped, Segment
from app.stream.tags import Scanner

_MAX_INDENT = 3
_MIN_MARKER = 3
_SPACES = re.compile(" *")
_MARKS = {"`": re.compile("`*"), "~": re.compile("~*")}

_CALLS = (
    "tool_code",
    "tool_call",
    "tool_calls",
    "tool_output",
    "tool_outputs",
    "function_call",
    "function_calls",
)
"""Info strings that say that a fence holds a call, or what came of one: Gemma's form, and others like it."""
_CALLS_BEGUN = sorted({word[:size] for word in _CALLS for size in range(1, len(word) + 1)}, reverse=True)
_MARKS_OF_CALL = r"(?:`{3,8}+|~{3,8}+)[ \t]{0,4}+"
_BEGUN = rf"(?:`{{1,8}}+|~{{1,8}}+|{_MARKS_OF_CALL}(?:{'|'.join(_CALLS_BEGUN)})?)\Z"
_HEAD = rf"{_MARKS_OF_CALL}(?:{'|'.join(reversed(_CALLS))})[ \t\r]{{0,16}}+"
CALL_FENCE = re.compile(
    rf"(?:\A[\s}},;]*+|\n[^\S\n]*+)(?P<fence>(?={_HEAD}(?:\n|\Z)|{_BEGUN}))", re.IGNORECASE
)
"""A line that begins such a fence, or may: the text's end may become anything."""
_WHOLE = re.compile(rf"(?P<said>{_HEAD})\n", re.IGNORECASE)
_PART = re.compile(rf"{_BEGUN}|{_HEAD}\Z", re.IGNORECASE)


class Fences:
    """Follows the lines of a reply and knows whether the next character stands in a fence.

    CommonMark's rule: a fence opens at the start of a line (three spaces at most before it); the
    info string of a backtick fence holds no backtick, so an inline ``` opens nothing. Of the line
    only its shape is kept, so work and memory do not grow with its length.

    line_may_open: the current line could still become a fence; else text on it need not be fed.
    """

    def __init__(self) -> None:
        self._fence = ""  # the character of the fence we are in, "" outside
        self._fence_size = 0
        self._start_line()

    def feed(self, text: str) -> None:
        """Take text that has gone out."""
        at = 0
        while True:
            end = text.find("\n", at)
            if self.line_may_open:
                self._extend(text, at, len(text) if end < 0 else end)
            if end < 0:
                return
            self._end_line()
            at = end + 1

    @property
    def inside(self) -> bool:
        """Whether the next character stands in a fence; an opening line counts at once."""
        return bool(self._fence) or (self.line_may_open and self._size >= _MIN_MARKER)

    def _start_line(self) -> None:
        self.line_may_open = True
        self._indent = 0
        self._mark = ""  # the character of the line's marker
        self._size = 0  # how often it stands there
        self._in_info = False  # something follows the marker
        self._has_info = False  # and it is more than whitespace

    def _extend(self, text: str, at: int, end: int) -> None:
        if not self._mark and at < end:
            at = self._take_indent(text, at, end)
        if self._mark and not self._in_info and at < end:
            stop = _run(_MARKS[self._mark], text, at)
            self._size += stop - at
            at = stop
        if self.line_may_open and self._mark and at < end:
            self._take_info(text, at, end)

    def _take_indent(self, text: str, at: int, end: int) -> int:
        stop = _run(_SPACES, text, at)
        self._indent += stop - at
        if stop < end and text[stop] in _MARKS:
            self._mark = text[stop]
        self.line_may_open = self._indent <= _MAX_INDENT and (stop == end or bool(self._mark))
        return stop if self.line_may_open else end

    def _take_info(self, text: str, at: int, end: int) -> None:
        self._in_info = True
        if self._size < _MIN_MARKER or (self._mark == "`" and text.find("`", at, end) >= 0):
            self.line_may_open = False
        elif not self._has_info:
            self._has_info = bool(text[at:end].strip())

    def _end_line(self) -> None:
        if self.line_may_open and self._size >= _MIN_MARKER:
            if not self._fence:
                self._fence, self._fence_size = self._mark, self._size
            elif self._mark == self._fence and self._size >= self._fence_size and not self._has_info:
                self._fence = ""
        self._start_line()


class CallFence(DroppingBlock):
    """`feed` it a line from its fence on until it is `done`; what it gives back is not its own.

    thoughts: finds think tags. plain: of what was given back, this is not to be asked again. No call is made of a fence: it is dropped to its end.
    """

    def __init__(self, index: int, thoughts: Scanner) -> None:
        self.done = False
        self.plain = 0
        self.index = index
        self._head = ""
        self._dropped = DroppedText(thoughts)
        self._fences: Fences | None = None  # once it is known that it holds a call

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text, up to the line end behind the closing fence."""
        if self._fences is not None:
            return self._in_fence(self._fences, text)
        head = self._head + text
        whole = _WHOLE.match(head)
        if whole is not None:
            self._begin(out)
            return head
        if _PART.match(head):
            self._head = head
            return ""
        self.done, self.plain = True, 1
        return head

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here, or something else interrupted it. Text to look at again."""
        self.done = True
        if self._fences is None and _WHOLE.match(self._head + "\n"):
            self._begin(out)
        if self._fences is not None:
            return ""
        self.plain = 1
        return self._head

    @property
    def raw(self) -> str:
        """What was taken, and may be a call."""
        return self._head

    @property
    def is_broken(self) -> bool:
        """Whether it is known to be no call, and is dropped to its end."""
        return self._fences is not None

    def _begin(self, out: list[Segment]) -> None:
        out.append(Dropped())
        self._fences = Fences()

    def _in_fence(self, fences: Fences, text: str) -> str:
        for own, behind in self._dropped.read(text):
            line, at = own or "\n", 0
            while end := line.find("\n", at) + 1:
                fences.feed(line[at:end])
                if not fences.inside:
                    self.done = True
                    return line[end:] + behind
                at = end
            fences.feed(line[at:])
        return ""


def _run(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the run of one character ends that starts at `at`."""
    match = pattern.match(text, at)
    return at if match is None else match.end()
