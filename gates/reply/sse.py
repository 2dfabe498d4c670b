"""Server-sent events: bytes in, payloads out.

Lines end at CR, LF or CRLF and nowhere else. `str.splitlines` also cuts at U+2028 and others, which are legal inside JSON, so bytes are split;
half a UTF-8 character can then never be seen either.
"""

BOM = b"\xef\xbb\xbf"
"""What a UTF-8 stream may begin with, and no field does (HTML Living Standard, 9.2.5)."""
MAX_EVENT_BYTES = 1 << 20
"""Largest event that is held before it is called a fault; WHATWG sets none, httpx2 chose 1 MiB."""


_CR, _LF = b"\r\n"  # as numbers: CPython looks for `bytes` in `bytes` by way of an exception
_LONGEST_FIELD = len(b"error: ")
"""What may stand before a value, so that a line may be so much longer than an event."""


class EventTooLong(Exception):
    """The peer sent more than the limit in one line or event. `payloads` were complete before."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.payloads: list[bytes] = []


class SSEDecoder:
    """Cuts a byte stream into the payloads of its `data:` fields. Comments, `event`, `id` and `retry` are dropped. llama.cpp builds of 2025 reported
    errors in a field `error`: its value is a payload of its own; the data of an event called `error` is that error, whatever its shape.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._longest_line = limit + _LONGEST_FIELD
        self._line = bytearray()  # a line that has not ended yet
        self._data: list[bytes] = []  # data fields of an event that has not ended yet
        self._size = 0  # of these, with the line ends between them
        self._is_error = False  # the event that has not ended yet is called `error`
        self._start: bytes | None = b""  # the stream's first bytes, while they may be a BOM
        self._after_cr = False  # the last byte was CR: a LF now is the other half of it

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the events that `data` completes. Raises EventTooLong."""
        if not self._start and (whole := self.whole_payloads(data)) is not None:
            self._start = None
            return whole
        if self._start is not None:
            data = self._without_bom(self._start + data)
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 0x0A:
                data = data[1:]
        if not data:
            return []
        lines = data.splitlines()
        ended = data[-1] in b"\r\n"
        self._after_cr = data[-1] == 0x0D
        if self._line:
            if len(lines) == 1 and not ended:
                self._grow(lines[0])
                return []
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        rest = b"" if ended else lines.pop()
        payloads: list[bytes] = []
        try:
            for line in lines:
                self._take(line, payloads)
            if rest:
                self._grow(rest)
        except EventTooLong as error:
            error.payloads = payloads
            raise
        return payloads

    def whole_payloads(self, data: bytes) -> list[bytes] | None:
        """The payloads, if `data` is whole events of one `data` line, none pending, as most reads are; None: `feed` it. Changes nothing."""
        if self._line or self._data or self._after_cr or self._is_error:
            return None
        if not (data.startswith(b"data: ") and data.endswith(b"\n\n")) or _CR in data:
            return None
        payloads = data[6:-2].split(b"\n\ndata: ")
        for payload in payloads:
            if _LF in payload or len(payload) > self._limit:
                return None
        return payloads

    @property
    def held(self) -> int:
        """Bytes of an event that is not over."""
        return len(self._line) + self._size

    def close(self) -> list[bytes]:
        """What the end of the stream completes: some servers omit the last blank line."""
        payloads: list[bytes] = []
        if self._start:
            self._line += self._start
        if self._line:
            self._take(bytes(self._line), payloads)
            self._line.clear()
        self._take(b"", payloads)
        return payloads

    def _without_bom(self, data: bytes) -> bytes:
        self._start = data if len(data) < len(BOM) and BOM.startswith(data) else None
        return b"" if self._start is not None else data.removeprefix(BOM)

    def _grow(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > self._longest_line:
            raise self._too_long()

    def _too_long(self) -> EventTooLong:
        return EventTooLong(f"a line of more than {self._longest_line} bytes")

    def _take(self, line: bytes, payloads: list[bytes]) -> None:
        if not line:
            if self._data:
                payload = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                is_bare = self._is_error and b'"error"' not in payload
                payloads.append(b'{"error":%s}' % payload if is_bare else payload)
                self._data, self._size = [], 0
            self._is_error = False
            return
        if len(line) > self._longest_line:
            raise self._too_long()
        name, _, value = line.partition(b":")
        if name not in (b"data", b"error"):
            name = name.removeprefix(
                BOM
            )  # where two streams were joined; by the standard the event would be lost
            if name not in (b"data", b"error"):
                self._is_error = value.strip() == b"error" if name == b"event" else self._is_error
                return
        if value[:1] == b" ":
            value = value[1:]
        if name == b"error":
            payloads.append(b'{"error":%s}' % (value or b"null"))
            return
        self._size += len(value) + bool(self._data)
        if self._size > self._limit:
            raise EventTooLong(f"an event of more than {self._limit} bytes")
        self._data.append(value)
