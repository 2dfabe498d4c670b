"""Joins what is left around a removed piece, so that it reads as if nothing had stood there. Pure.

One space stays where two met or where words would be glued together; emphasis around nothing, empty brackets, and a
bullet without an item go, too. What may become such a remnant (white space, `*`, `_`, `~`, `(`, and a bullet at the start
of a line) is held until the next character; all other text passes at once.
"""

import re

MAX_HELD = 128
"""Characters that are held at most: a longer run goes out from its beginning on."""
RUN = " \t\r\n*_~("
"""Characters that the end of a text is held for."""
_LINE = re.compile(r"(?:>[ \t]*)*[ \t]*(?:[-+\u2022]|[0-9]{1,3}(?:[.)])?)?[\s*_~(]*")
"""A line so far that may be a bullet, or emphasis, and nothing else."""
_BEHIND = re.compile(rf"[\s*_~)]{{0,{MAX_HELD}}}")
_BULLET = re.compile(r"(?:(?<=\n)|\A)(?:(?:>[ \t]*)+|[ \t]*(?:[-+*\u2022]|[0-9]{1,3}[.)])[ \t]+)\Z")
_NO_SPACE_BEFORE = ".,;:!?)]}%…”’»。，、！？；："
_NO_SPACE_AFTER = "([{“‘«\"'`/-"
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef\u0e00-\u0eff]")
"""Scripts that put no space between words."""


class Joiner:
    """`text` gives back what may go out; `removed` says that something was taken out at this place."""

    def __init__(self) -> None:
        self.held = ""
        self._is_gap = self._is_start = True  # line breaks before the first word are the template's
        self._behind = ""  # held text behind the gap
        self.last = ""  # the last character that went out; "" at the start of the reply
        self._is_line = True  # nothing of the current line has gone out

    @property
    def is_plain(self) -> bool:
        """Whether text goes out as it is that has no line break and does not end in one of `RUN`."""
        return not (self._is_gap or self.held or self._is_line)

    def text(self, text: str) -> str:
        if self._is_gap:
            text = self._behind + text
            run = _BEHIND.match(text)
            assert run is not None
            if run.end() == len(text) < MAX_HELD:
                self._behind = text
                return ""
            self._behind = ""
            if run[0] or self.held or self.last:
                text = self._joined(run[0], text[run.end() : run.end() + 1] or "*") + text[run.end() :]
            self._is_gap = False
        else:
            text = self.held + text
        self.held = self._tail(text)
        return self._out(text[: len(text) - len(self.held)])

    def removed(self) -> None:
        if self._is_gap and self._behind:
            self.held, self._behind = self._joined(self._behind, "*"), ""
        self._is_gap, self._is_start = True, False

    def rewind(self, last: str) -> None:
        """What went out of here was taken back, up to the character `last`."""
        self.held = self._behind = ""
        self.last, self._is_line, self._is_gap = last, not last or last == "\n", False

    def flush(self) -> str:
        """What is held, at the end or before something that is no text."""
        text = self._joined(self._behind, "") if self._is_gap else self.held
        self.held = self._behind = ""
        return self._out(text)

    def _out(self, text: str) -> str:
        if text:
            self.last = text[-1]
            at = text.rfind("\n")
            if at >= 0:
                self._is_line = True
            if text[at + 1 :]:
                self._is_line = False
        return text

    def _tail(self, text: str) -> str:
        at = len(text.rstrip(RUN))
        line = text.rfind("\n", 0, at) + 1
        if (line or self._is_line) and _LINE.fullmatch(text, line):
            at = line
            while at and text[at - 1] in RUN:
                at -= 1
        return text[max(at, len(text) - MAX_HELD) :]

    def _joined(self, behind: str, then: str) -> str:
        """What stands between the text before the gap and the character `then` ("" at the end)."""
        before, self.held, self._is_gap = self.held, "", False
        while (mark := before[-1:]) and mark in "*_~(" and behind.startswith({"(": ")"}.get(mark, mark)):
            before, behind = before[:-1], behind[1:]
        if (
            (not then or "\n" in behind)
            and (bullet := _BULLET.search(before))
            and (bullet.start() or self._is_line)
        ):
            before = before[: bullet.start()]
            behind = behind.lstrip("\n") if before.endswith("\n") or not self.last else behind
        words = before.rstrip(" \t\r\n")
        spaces, more = before[len(words) :], behind.lstrip(" \t\r\n")
        after = behind[: len(behind) - len(more)]
        return words + self._space(spaces, after, words[-1:] or self.last, (more or then)[:1]) + more

    def _space(self, before: str, behind: str, last: str, then: str) -> str:
        if not last:
            return behind.rpartition("\n")[2] if self._is_start else ""  # nothing was said yet
        lines = max(before.count("\n"), behind.count("\n"))
        if lines:
            return "\n" * lines + (
                behind.rpartition("\n")[2] if "\n" in behind else before.rpartition("\n")[2] if then else ""
            )
        if not then:
            return before or behind
        if then in _NO_SPACE_BEFORE or (last in _NO_SPACE_AFTER and not before):
            return ""
        if before or behind:
            return " "
        is_glued = (last.isalnum() or last in _NO_SPACE_BEFORE) and then.isalnum()
        return " " if is_glued and not (_WIDE.match(last) and _WIDE.match(then)) else ""
