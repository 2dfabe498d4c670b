"""Splits timed reads of a socket into server-sent events, each with its time. Pure.

Lines end at CR, LF or CRLF only (U+2028 may stand in JSON). llama.cpp builds of 2025 report errors in a field `error`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from gates.contracts.sample import TimedRead

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event's data, and the time in ns of the read that completed it. Not `whole`: the stream ended before its blank line."""

    at_ns: int
    payload: bytes
    whole: bool = True


def stream_events(reads: Sequence[TimedRead]) -> Iterator[StreamEvent]:
    """The events of a stream, in order."""
    ends = list(accumulate(len(read.data) for read in reads))
    held: list[bytes] = []
    for start, line in _lines(b"".join(read.data for read in reads)):
        if line is None:  # the end of the body
            if held:
                yield StreamEvent(reads[-1].at_ns, b"\n".join(held), whole=False)
        elif line:
            held += _data(line)
        elif held:
            yield StreamEvent(reads[bisect_right(ends, start)].at_ns, b"\n".join(held))
            held = []


def _lines(body: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Every line with the offset of its end, also a last one without a line break; then None."""
    begin = 0
    for end in _LINE_END.finditer(body):
        yield end.start(), body[begin : end.start()]
        begin = end.end()
    if begin < len(body):
        yield len(body), body[begin:]
    yield len(body), None


def _data(line: bytes) -> list[bytes]:
    """What a line adds to its event's data."""
    name, _, value = line.partition(b":")
    value = value.removeprefix(b" ")
    if name == b"error":
        return [b'{"error":%b}' % (value or b"null")]
    return [value] if name == b"data" else []
