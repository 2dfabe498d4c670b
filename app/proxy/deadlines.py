"""What may end an exchange early: the caller disconnects, or the engine or the caller is too slow.

All end it by cancelling the task that serves it; `Deadlines` keeps the cause. It costs nothing per chunk: one timer
checks now and then whether there was progress, and is set again for the earliest moment that matters.

Silence is the engine's fault, unless the caller has stopped reading: then we have paused the engine. A caller who reads
nothing for as long as an engine may be silent counts as gone.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Literal, Self

from app.config.config import Timeouts
from app.errors.translate import as_internal_error, route_errors_to
from app.errors.tree import Draining, EngineTimeout, MannersError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Cause = Literal["client", "first_token", "idle", "total", "draining", "failed"]


STARVED_SECONDS = 0.25
"""The timer fired so late: our loop was starved, and what engines and callers sent is still unread. Look again after
GRACE_SECONDS."""
GRACE_SECONDS = 0.1


class ClientGone(Exception):
    """The caller closed the connection, or stopped reading: no error is sent."""


class Deadlines:
    """`async with Deadlines(...) as line:` around one request, from its head on; it is one of `among` meanwhile.

    The reader of tokens sets `progress`; the writer calls `full` and `free`. Raises from the block: ClientGone,
    EngineTimeout (total_timeout), Draining, or what `fail` was given. `begin` when an engine is asked; if that is
    cancelled, `late` tells whether that engine was too slow (first_token_timeout, idle_timeout), and another may be asked.
    Call `over()` just before the last byte is sent: from then on only the caller is timed.
    """

    timeouts: Timeouts  # to be set before `begin`

    patience = 0.0  # for the engine's first token in seconds, where the model names none
    next_engine: Callable[[], object | None] = staticmethod(
        lambda: None
    )  # that takes the request if this one is given up
    begun = 0.0  # when the engine was asked; perf_counter seconds
    replies = 1  # still to come; of a request for several choices there are more
    progress = 0.0  # when the engine last gave a token; perf_counter seconds, 0: not yet
    _cause: Cause | None = None
    _has_left = False  # the caller
    _cycle: Any = None
    _failure: MannersError | None = None
    _over = False
    _timer: asyncio.TimerHandle | None = None
    _look_at = 0.0  # when the timer is due; perf_counter seconds
    _full_since = 0.0  # when the caller stopped to read; 0: it reads
    _first_by = 0.0
    _total_by = 0.0

    def __init__(self, receive: Receive | None, among: set["Deadlines"]) -> None:
        """`receive` is our server's (`app.http.connection`), which tells when the caller leaves; None: nobody tells."""
        self._receive = receive
        self._among = among
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._among.add(self)
        if self._receive is None:
            return self
        self._cycle = cycle = self._receive.__self__  # type: ignore[attr-defined]
        cycle.on_lost = self._client_left
        if cycle.disconnected:
            self._loop.call_soon(self._client_left)
        return self

    def body_read(self) -> None:
        """The request is here. A large body has paused the reading, and a caller who left would not be noticed."""
        self._cycle.flow.resume_reading()

    def begin(self) -> None:
        """An engine is asked: its deadlines run from now, the whole reply's from the first one."""
        self.begun = now = time.perf_counter()
        self._first_by = now + (self.timeouts.first_token or self.patience)
        self._total_by = self._total_by or now + self.timeouts.total
        self.progress = 0.0
        self._arm(self._next_look(now), now)

    def late(self) -> EngineTimeout | None:
        """If this request's task was cancelled for a slow engine: takes the cancellation back and returns the error; else None."""
        cause = self._cause
        if cause not in ("first_token", "idle") or self._task.uncancel():
            return None
        self._cause = None
        if self._has_left:  # the caller left in the same moment
            self._end("client")
        return self._too_late(cause)

    @property
    def is_full(self) -> bool:
        """Whether the caller does not read, and the engine is not read either."""
        return self._full_since > 0

    def full(self) -> None:
        """The caller takes no more for now, and the engine waits for it."""
        self._full_since = time.perf_counter()

    def free(self) -> None:
        """The caller has taken everything. Before the first token the engine has made no progress by that."""
        self._full_since = 0.0
        if self.progress:
            self.progress = time.perf_counter()

    def cut_off(self) -> None:
        """The gateway goes down, and waits no longer."""
        if not self._over:
            self._end("draining")

    def fail(self, error: BaseException) -> None:
        """A callback that serves this exchange raised, outside of its task."""
        if self._cause is None:
            self._failure = as_internal_error(error)
            self._end("failed")

    def over(self) -> None:
        """The last byte of a reply is about to go."""
        self.replies -= 1
        self._over = not self.replies

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over = True
        self._among.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._cycle is not None:
            self._cycle.on_lost = self._cycle = None
        if self._cause is None:
            return
        if kind is not asyncio.CancelledError:  # cancelled in the last moment: let it arrive here
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if not self._task.uncancel() and kind in (None, asyncio.CancelledError):
            reason = self._reason(self._cause)
            raise reason from reason.__cause__

    def _client_left(self) -> None:
        self._has_left = True
        if not self._over:  # the server also calls this after the last byte
            self._end("client")

    def _arm(self, at: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(at - now, 0.001), self._look)
        self._look_at = at

    def _look(self) -> None:
        with route_errors_to(self.fail):  # without its timer an exchange could last for ever
            now = time.perf_counter()
            cause = self._overdue(now)
            if cause is None:
                return self._arm(self._next_look(now), now)
            if now - self._look_at > STARVED_SECONDS:
                return self._arm(now + GRACE_SECONDS, now)
            self._end(cause)

    def _overdue(self, now: float) -> Cause | None:
        if self._full_since:
            return "client" if now >= self._full_since + self.timeouts.idle else None
        if self._over:
            return None
        if now >= self._total_by:
            return "total"
        if not self.progress:
            return "first_token" if now >= self._first_by and not self._waits_on(now) else None
        return "idle" if now >= self.progress + self.timeouts.idle else None

    def _waits_on(self, now: float) -> bool:
        """Whether nobody is better off if this engine is given up: no limit was configured, and no other engine takes requests."""
        if self.timeouts.first_token is not None or self.next_engine() is not None:
            return False
        self._first_by = now + self.patience
        return True

    def _next_look(self, now: float) -> float:
        """At most one idle time from now: what begins meanwhile is not overdue before that."""
        idle = self.timeouts.idle
        if self._full_since:
            return self._full_since + idle
        if self._over:
            return now + idle
        if self.progress:
            return min(self.progress + idle, self._total_by)
        return min(now + idle, self._first_by, self._total_by)

    def _end(self, cause: Cause) -> None:
        if self._cause is None:
            self._cause = cause
            self._task.cancel()

    def _reason(self, cause: Cause) -> Exception:
        if cause == "client":
            return ClientGone()
        if cause == "draining":
            return Draining("this gateway is shutting down and could not wait for the end of this reply")
        return self._failure or self._too_late(cause)

    def _too_late(self, cause: Cause) -> EngineTimeout:
        seconds, what = self.timeouts.total, "the reply was not over"
        if cause == "first_token":
            seconds, what = self.timeouts.first_token or self.patience, "no token came from the engine"
        elif cause == "idle":
            seconds, what = self.timeouts.idle, "the engine fell silent in mid-reply"
        return EngineTimeout(f"{what} within {seconds:g} s", f"{cause}_timeout")
