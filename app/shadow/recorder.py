"""Records a share of the finished chats, beside the event loop: redaction and the disk are a thread's work.

The loop hashes an id and puts a value into a queue. Where the queue is full, a record is left out;
where the disk refuses, recording ends with one warning; callers notice neither.
"""

import queue
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Final

from app.config import Config
from app.ear import Heard
from app.exchange import Exchange
from app.log import Logger, where
from app.shadow.record import Taken, is_chosen, redacted, render
from app.shadow.settings import Shadow
from app.shadow.store import Store, first_kept
from app.surfaces.surface import OverChat

WAITING: Final = 64
"""Records that may wait for the disk."""
LONGEST: Final = 128 << 10
"""Bytes of a request that are redacted; to look through more would take the interpreter from callers."""
CLOSE_SECONDS: Final = 5.0

Now = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


def recorder_for(config: Config, log: Logger) -> "Recorder | None":
    """As the configuration asks. What is too old goes, also where nothing is recorded any more."""
    store = Store(config.state_dir)
    with suppress(OSError):
        store.forget_before(first_kept(_now().date(), config.shadow.keep_days))
    return Recorder(config.shadow, store, log) if config.shadow.record else None


class Recorder:
    """Takes chats that are over. `close` when the gateway ends."""

    def __init__(self, settings: Shadow, store: Store, log: Logger, now: Now = _now) -> None:
        self._settings, self._store, self._log, self._now = settings, store, log, now
        self._own = tuple(re.compile(pattern) for pattern in settings.redact)
        self._queue: queue.Queue[Taken | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._ended = False
        self._day: date | None = None
        self._size = 0
        self._told_full = False

    def take(self, request_id: str, model: str, engine: str, exchange: Exchange, heard: Heard) -> None:
        """A request is over. Chats that went well are kept, if they are of the share."""
        if self._ended or heard.ended != "ok" or not isinstance(exchange.surface, OverChat):
            return
        if not is_chosen(request_id, self._settings.share) or len(exchange.body) > LONGEST:
            return
        calls = tuple((name, "".join(parts)) for name, parts in exchange.witness.calls)
        thinking, body = exchange.policy.think.thinking, exchange.asked.body
        taken = Taken(
            request_id, self._now(), model, engine, thinking, body, calls, heard.breaches, heard.wait
        )
        with suppress(queue.Full):
            self._queue.put_nowait(taken)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what waits; bounded."""
        self._ended = True
        if self._thread is not None:
            with suppress(queue.Full):
                self._queue.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (taken := self._queue.get()) is not None:
            try:
                self._write(taken)
            except OSError as error:
                self._ended = True
                self._log.warning("shadow_stopped", reason=error.strerror, path=str(self._store.folder))
                return
            except Exception as bug:  # the thread's edge: this one is not kept, and the next one may be
                self._log.warning("shadow_failed", **where(bug))

    def _write(self, taken: Taken) -> None:
        line = render(redacted(taken, self._own))
        day = taken.at.date()
        if day != self._day:
            self._store.forget_before(first_kept(day, self._settings.keep_days))
            self._day, self._size, self._told_full = day, self._store.size(), False
        if self._has_room(day, len(line)):
            self._store.append(day, line)
            self._size += len(line)

    def _has_room(self, today: date, size: int) -> bool:
        """Older days make room; where today fills it all, nothing more is kept of today."""
        most = self._settings.max_mb * 1_000_000
        if self._size + size > most:
            for day in self._store.days():
                if day < today and self._size + size > most:
                    self._store.forget(day)
                    self._size = self._store.size()
        has_room = self._size + size <= most
        if not has_room and not self._told_full:
            self._told_full = True
            self._log.warning("shadow_full", count=self._size, path=str(self._store.folder))
        return has_room
