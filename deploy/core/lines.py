"""Splits the bytes of a log into lines on CR, LF and CRLF only; `bytes.splitlines` keeps no state between reads."""

import re

_END = re.compile(rb"\r\n|\r|\n")


class LineSplitter:
    """`feed` returns the complete lines, `close` the rest. Buffers at most `limit` bytes; the work is linear in the bytes."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._held: list[bytes] = []  # of a line without its end
        self._size = 0
        self._after_cr = False  # the last byte was a CR: a LF now belongs to it

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends; a line longer than the limit comes in pieces."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        first, *rest = _END.split(data)
        self._hold(first)
        lines = []
        if rest:
            lines = [b"".join(self._held), *rest[:-1]]
            self._held, self._size = [], 0
            self._hold(rest[-1])
        return [*lines, *self.close()] if self._size > self._limit else lines

    def _hold(self, part: bytes) -> None:
        if part:
            self._held.append(part)
            self._size += len(part)

    def close(self) -> list[bytes]:
        """The unfinished last line, if there is one."""
        held, self._held, self._size = b"".join(self._held), [], 0
        return [held] if held else []
