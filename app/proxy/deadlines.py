"""What may end an exchange early: the caller disconnects, or the engine or the caller is too slow.

All end it by cancelling the task that serves it; `Deadlines` keeps the error. It costs nothing per chunk: one timer
checks now and then whether there was progress, and is set again for the earliest moment that matters.

Silence is the engine's fault, unless the caller has stopped reading: then we have paused the engine. A caller who reads
nothing for as long as an engine may be silent counts as gone.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from app.config.config import Timeouts
from app.errors.translate import as_internal_error, route_errors_to
from app.errors.tree import EngineTimeout, Unavailable

STARVED_SECONDS = 0.25
"""The timer fired so late: our loop was starved, and what engines and callers sent is still unread. Look again after
GRACE_SECONDS."""
GRACE_SECONDS = 0.1
_LATE = {
    "first_token": "no token came from the engine",
    "idle": "the engine fell silent in mid-reply",
    "total": "the reply was not over",
}


class ClientGone(Exception):
    """The caller closed the connection, or stopped reading: no error is sent."""


class Deadlines:
    """`async with Deadlines(...) as line:` around one request, from its head on; it is one of `among` meanwhile.

    The reader of tokens sets `progress`; the writer calls `full` and `free`. Raises from the block: ClientGone,
    EngineTimeout (total_timeout), Unavailable, or what `fail` was given. `begin` when an engine is asked; if that is
    cancelled, `late` tells whether that engine was too slow (first_token_timeout, idle_timeout), and another may be asked.
    Call `over()` just before the last byte is sent: from then on only the caller is timed. Times are perf_counter seconds.
    """

    timeouts: Timeouts  # to be set before `begin`

    patience = 0.0  # for the engine's first token in seconds, where the model names none
    next_engine: Callable[[], object | None] = staticmethod(lambda: None)  # that would take the request
    begun = 0.0  # when the engine was asked
    progress = 0.0  # when the engine last gave a token; 0: not yet
    full_since = 0.0  # when the caller stopped to read, and the engine was paused; 0: it reads
    _error: Exception | None = None  # for which the task was cancelled
    _has_left = False  # the caller
    _over = False
    _timer: asyncio.TimerHandle | None = None
    _look_at = 0.0  # when the timer is due
    _first_by = 0.0
    _total_by = 0.0

    def __init__(self, cycle: Any, among: set["Deadlines"]) -> None:
        """`cycle` is our server's of this request (`app.http.connection`), which tells when the caller leaves."""
        self._cycle = cycle
        self._among = among
        self.loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        task = asyncio.current_task(self.loop)
        assert task is not None
        self._task = task
        self._among.add(self)
        self._cycle.on_lost = self._client_left
        if self._cycle.disconnected:
            self.loop.call_soon(self._client_left)
        return self

    def begin(self) -> None:
        """An engine is asked: its deadlines run from now, the whole reply's from the first one."""
        self.begun = now = time.perf_counter()
        self._first_by = now + (self.timeouts.first_token or self.patience)
        self._total_by = self._total_by or now + self.timeouts.total
        self.progress = 0.0
        self._arm(now)

    def late(self) -> EngineTimeout | None:
        """If this request's task was cancelled for a slow engine: takes the cancellation back and returns the error; else None."""
        error = self._error
        if not isinstance(error, EngineTimeout) or error.code == "total_timeout" or self._task.uncancel():
            return None
        self._error = None
        if self._has_left:  # the caller left in the same moment
            self._end(ClientGone())
        return error

    def full(self) -> None:
        """The caller takes no more for now, and the engine waits for it."""
        self.full_since = time.perf_counter()

    def free(self) -> None:
        """The caller has taken everything. Before the first token the engine has made no progress by that."""
        self.full_since = 0.0
        if self.progress:
            self.progress = time.perf_counter()

    def cut_off(self) -> None:
        """The gateway goes down, and waits no longer."""
        if not self._over:
            why = "this gateway is shutting down and could not wait for the end of this reply"
            self._end(Unavailable(why))

    def fail(self, error: BaseException) -> None:
        """A callback that serves this exchange raised, outside of its task."""
        self._end(as_internal_error(error))

    def over(self) -> None:
        """The last byte of the whole reply is about to go."""
        self._over = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over = True
        self._among.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._cycle.on_lost = self._cycle = None
        if (reason := self._error) is None:
            return
        if kind is not asyncio.CancelledError:  # cancelled in the last moment: let it arrive here
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if not self._task.uncancel() and kind in (None, asyncio.CancelledError):
            raise reason from reason.__cause__

    def _client_left(self) -> None:
        self._has_left = True
        if not self._over:  # the server also calls this after the last byte
            self._end(ClientGone())

    def _arm(self, now: float) -> None:
        """Look again at most one idle time from now: what begins meanwhile is not overdue before that."""
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = at = min(self._due()[0], now + self.timeouts.idle)
        self._timer = self.loop.call_later(max(at - now, 0.001), self._look)

    def _look(self) -> None:
        with route_errors_to(self.fail):  # without its timer an exchange could last for ever
            now = time.perf_counter()
            at, cause = self._due()
            may_wait = cause == "first_token" and self.timeouts.first_token is None
            if now >= at and may_wait and self.next_engine() is None:  # nobody is better off without it
                self._first_by = at = now + self.patience
            if now < at:
                self._arm(now)
            elif now - self._look_at > STARVED_SECONDS:
                self._look_at = now + GRACE_SECONDS
                self._timer = self.loop.call_later(GRACE_SECONDS, self._look)
            else:
                self._end(self._too_late(cause))

    def _due(self) -> tuple[float, str]:
        """The next moment that matters, and whose fault it is if it passes."""
        if self.full_since:
            return self.full_since + self.timeouts.idle, "client"
        if self._over:
            return math.inf, ""
        if self.progress:
            return min((self.progress + self.timeouts.idle, "idle"), (self._total_by, "total"))
        return min((self._first_by, "first_token"), (self._total_by, "total"))

    def _end(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._task.cancel()

    def _too_late(self, cause: str) -> Exception:
        if cause == "client":
            return ClientGone()
        seconds = getattr(self.timeouts, cause) or self.patience
        return EngineTimeout(f"{_LATE[cause]} within {seconds:g} s", f"{cause}_timeout")
