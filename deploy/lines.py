"""Bytes into lines, for streams of events and for logs: split on CR, LF and CRLF, only there.

`bytes.splitlines` is not used because it keeps no state between reads, and `str.splitlines` must
not be: it also splits on characters that may stand inside JSON text (U+2028, U+0085).
"""

import re

_END = re.compile(rb"\r\n|\r|\n")


class LineSplitter:
    """`feed` gives the lines that are complete, `close` the rest. Keeps at most `limit` bytes."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends.

        A line that outgrows the limit is given back in pieces.
        """
        held = self._held + data
        # A CR at the very end may be the first half of a CRLF: wait for the next byte.
        tail = b"\r" if held.endswith(b"\r") else b""
        *lines, self._held = _END.split(held[: len(held) - len(tail)])
        self._held += tail
        if len(self._held) > self._limit:
            lines += self.close()
        return lines

    def close(self) -> list[bytes]:
        """What was held when the stream ended; nothing if it ended with a line."""
        held, self._held = self._held.removesuffix(b"\r"), b""
        return [held] if held else []
