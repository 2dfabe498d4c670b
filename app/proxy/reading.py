"""From a request's bytes to its checked values.

A request that takes milliseconds has a turn of its own in the event loop; one that may take seconds is read in a thread,
for which a bounded number wait.
"""

from functools import partial
from typing import Final

from app.api.surface import ParsedRequest, Surface
from app.errors.translate import as_internal_error
from app.proxy.admission import FairScheduler, ThreadQueue
from gates.contracts.markers import START

_NARROW: Final = "".join(mark for mark in START if mark.isascii()).encode() + b"{"
_WIDE: Final = tuple(mark.encode() for mark in START if not mark.isascii())
_ESCAPED: Final = (b"\\u00", b"\\u25", b"\\uff", b"\\uFF", b"\\ufF", b"\\uFf")
"""Costly parts of a request, at 10 us each: characters that may begin a tag, also escaped in JSON, and objects."""
_BEGIN_NONE: Final = bytes(set(range(256)) - {mark[0] for mark in (*_WIDE, *_ESCAPED)} - {*_NARROW})
_NOT_NARROW: Final = bytes(set(range(256)) - {*_NARROW})

LITTLE_BYTES: Final = 8 << 10
LITTLE_MARKS: Final = 64
MOST_MARKS: Final = 1024

REQUEST_THREADS: Final = 2  # few, since they compete with the event loop for the interpreter's lock
MOST_WAITING: Final = 32  # requests that wait for a thread: one of 1 MiB takes up to 5 s
PATIENCE_SECONDS: Final = 30.0


def takes_long(request: bytes) -> bool:
    """Whether this is to be read in a thread. Long plain text is not: it takes 20 ms a MiB."""
    if len(request.translate(None, _BEGIN_NONE)) <= MOST_MARKS:
        return False
    marks = len(request.translate(None, _NOT_NARROW))
    return marks > MOST_MARKS or marks + sum(map(request.count, (*_WIDE, *_ESCAPED))) > MOST_MARKS


class RequestReader:
    """Reads the requests of one gateway."""

    def __init__(self) -> None:
        self._turns = FairScheduler()
        self._threads = ThreadQueue(REQUEST_THREADS, MOST_WAITING)

    async def read(self, surface: Surface, raw: bytes, max_messages: int) -> ParsedRequest:
        """The checked request. Raises RequestError, Busy."""
        # Parsing a small body takes half a millisecond: no turn and no thread.
        if len(raw) > LITTLE_BYTES or len(raw.translate(None, _BEGIN_NONE)) > LITTLE_MARKS:
            await self._turns.turn()
            if takes_long(raw):
                parse = partial(surface.parse, raw, max_messages)
                return await self._threads.do(parse, PATIENCE_SECONDS, as_internal_error)
        return surface.parse(raw, max_messages)
