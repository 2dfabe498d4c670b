"""Signs of life for a streaming caller while nothing is said: a comment, after so many seconds of silence.

Proxies and clients cut a connection that is silent for long, and a long prefill or a hidden thought is. It
is off unless a model asks for it, because the first comment sends the status line, and what goes wrong after
that can only be told in the stream. Another engine may still answer: nothing visible has gone out.

It costs nothing per chunk. As in `app.proxy.deadlines`, one timer looks now and then at when the caller last got
something, and is set again for the moment at which that will be too long ago.
"""

import asyncio
import time
from collections.abc import Callable

from app.errors.translate import contained
from app.proxy.deadlines import Lifeline
from app.proxy.outlet import Outlet, Send
from app.stream.clocks import Clocks
from app.upstream.batching import Round

Headers = list[tuple[bytes, bytes]]


class Pulse:
    """One streamed request's. It owns the way out, for the engines that are asked come and go.

    `start` is when the request came, in `time.perf_counter` seconds. An engine that is asked is followed
    (`follow`); its reply borrows the outlet (`lend`, `take_back`), sends the head through `open`, and says
    `wrote` where the clocks see nothing, and at the end. `close` when the request is over.
    """

    def __init__(
        self, seconds: float, comment: bytes, start: float, line: Lifeline, round_: Round, send: Send
    ) -> None:
        self._seconds, self._comment = seconds, comment
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._outlet = Outlet(send, round_, line.full, line.free, line.fail)
        self._last = start  # when the caller last got something that the clocks did not see
        self._clocks: Clocks | None = None
        self._headers: Headers = []
        self._timer: asyncio.TimerHandle | None = None
        self.opened = False  # the status line has gone out

    def follow(self, clocks: Clocks, headers: Headers) -> None:
        """An engine is asked: signs of life are for its reply now, and would begin with these headers."""
        self._clocks, self._headers = clocks, headers
        if self._timer is None:
            self._look()

    def lend(self, on_full: Callable[[], None], on_free: Callable[[], None]) -> Outlet:
        """The way out, for a reply that is to wait when the caller does not read."""
        self._outlet.serve(on_full, on_free)
        return self._outlet

    def take_back(self) -> None:
        """That reply is over, and may be no more."""
        self._outlet.serve(self._line.full, self._line.free)

    def open(self) -> None:
        """The status line and the headers, if they have not gone out."""
        if not self.opened:
            self._outlet.put({"type": "http.response.start", "status": 200, "headers": self._headers})
            self.opened = True

    def wrote(self, more: bool) -> None:
        """Something goes out; behind the last byte nothing more may."""
        self._last = time.perf_counter()
        if not more:
            self._stop()

    def close(self) -> None:
        """Write nothing more."""
        self._stop()
        self._outlet.abandon()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        with contained(self._line.fail):
            self._timer = self._loop.call_later(max(self._beat(), 0.001), self._look)

    def _beat(self) -> float:
        """A sign of life, if it is due. In how many seconds to look again."""
        assert self._clocks is not None
        now = time.perf_counter()
        if self._outlet.is_behind:  # there is something that the caller has not taken yet
            self._last = now
        due = max(self._last, self._clocks.shown) + self._seconds
        if now >= due:
            self.open()
            self._outlet.put({"type": "http.response.body", "body": self._comment, "more_body": True})
            self._last, due = now, now + self._seconds
        return due - now
