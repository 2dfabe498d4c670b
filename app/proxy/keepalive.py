"""Keep-alive comments for a streaming caller, sent after so many seconds of silence.

Proxies and clients cut a silent connection, and a long prefill or a hidden thought is silent. It is off unless a model
asks for it, because the first comment sends the status line: a later fault can only go into the stream. Another engine
may still answer, for nothing visible has gone out. As in `app.proxy.deadlines`, one timer costs nothing per chunk.
"""

import asyncio
import time
from collections.abc import Callable

from app.errors.translate import route_errors_to
from app.proxy.deadlines import Deadlines
from app.proxy.response_writer import ResponseWriter, Send
from app.stream.clocks import Clocks
from app.upstream.batching import IOBatch

Headers = list[tuple[bytes, bytes]]


class KeepAlive:
    """The comments of one streamed request. It owns the response writer, which outlives the engines that are asked.

    `start` is when the request came, in `time.perf_counter` seconds. `follow` names the engine's reply that is waited
    for; that reply borrows the writer (`lend`, `take_back`), sends the head through `open`, and calls `wrote` for bytes
    that the clocks do not see, and at the end. `close` when the request is over.
    """

    def __init__(
        self,
        seconds: float,
        comment: bytes,
        start: float,
        deadlines: Deadlines,
        batch: IOBatch,
        send: Send,
    ) -> None:
        self._seconds, self._comment = seconds, comment
        self._deadlines = deadlines
        self._loop = asyncio.get_running_loop()
        self._writer = ResponseWriter(send, batch, deadlines.full, deadlines.free, deadlines.fail)
        self._last = start  # when the caller last got something that the clocks did not see
        self._clocks: Clocks | None = None
        self._headers: Headers = []
        self._timer: asyncio.TimerHandle | None = None
        self.opened = False  # the status line has gone out

    def follow(self, clocks: Clocks, headers: Headers) -> None:
        """An engine is asked: comments wait for its reply now, and would begin with these headers."""
        self._clocks, self._headers = clocks, headers
        if self._timer is None:
            self._look()

    def lend(self, on_full: Callable[[], None], on_free: Callable[[], None]) -> ResponseWriter:
        """The response writer, for a reply that is to wait when the caller does not read."""
        self._writer.serve(on_full, on_free)
        return self._writer

    def take_back(self) -> None:
        """That reply is over: let go of it."""
        self._writer.serve(self._deadlines.full, self._deadlines.free)

    def open(self) -> None:
        """The status line and the headers, if they have not gone out."""
        if not self.opened:
            self._writer.begin(self._headers)
            self.opened = True

    def wrote(self, more: bool) -> None:
        """Something goes out; behind the last byte nothing more may."""
        self._last = time.perf_counter()
        if not more:
            self._stop()

    def close(self) -> None:
        """Write nothing more."""
        self._stop()
        self._writer.abandon()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        with route_errors_to(self._deadlines.fail):
            self._timer = self._loop.call_later(max(self._beat(), 0.001), self._look)

    def _beat(self) -> float:
        """Send a comment if it is due. Returns in how many seconds to look again."""
        assert self._clocks is not None
        now = time.perf_counter()
        if self._writer.is_behind:  # there is something that the caller has not taken yet
            self._last = now
        due = max(self._last, self._clocks.shown) + self._seconds
        if now >= due:
            self.open()
            self._writer.write(self._comment)
            self._last, due = now, now + self._seconds
        return due - now
