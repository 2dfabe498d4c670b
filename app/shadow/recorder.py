"""Records a share of the finished chats, beside the event loop: redaction and the disk are a thread's work.

The loop draws a random number and puts a value into a queue. A record is left out, and counted in
`manners_shadow_dropped_total{reason}`, where the queue is full, where the request is too long, where the
disk refuses it and where it cannot be redacted; callers notice none of it. A disk that refuses is
reported once, and again when it has recovered. A worker that died is started again with the next record.

Whether a chat is recorded, and under which id, is decided by this process's own randomness: a caller's
`x-request-id` has no part in it.
"""

import errno
import queue
import random
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Final, Literal

from app.api.surface import OverChat
from app.config.config import Config, Shadow
from app.proxy.exchange import Exchange
from app.shadow.record import Taken, redacted, render
from app.shadow.store import Store, first_kept
from app.telemetry.log import Logger, where
from app.telemetry.redact import TooManySecrets, compiled
from app.telemetry.reply_window import Heard

WAITING: Final = 64
"""Records that may wait for the disk."""
LONGEST: Final = 128 << 10
"""Bytes of a request that are redacted; to look through more would take the interpreter from callers."""
CLOSE_SECONDS: Final = 5.0

_CHANCE: Final = random.SystemRandom()
_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")

Now = Callable[[], datetime]
Dropped = Literal["queue_full", "too_long", "too_many_secrets", "disk", "limit", "error", "worker_died"]
"""Why a record was left out; `limit` is `max_mb`."""
Count = Callable[[Dropped], None]


def _now() -> datetime:
    return datetime.now(UTC)


def recorder_for(config: Config, log: Logger, dropped: Count) -> "Recorder | None":
    """As the configuration asks. What is too old goes, also where nothing is recorded any more."""
    store = Store(config.state_dir)
    with suppress(OSError):
        store.forget_before(first_kept(_now().date(), config.shadow.keep_days))
    return Recorder(config.shadow, store, log, dropped) if config.shadow.record else None


class Recorder:
    """Takes chats that are over. `close` when the gateway ends.

    `chance` draws from [0, 1).
    """

    def __init__(
        self,
        settings: Shadow,
        store: Store,
        log: Logger,
        dropped: Count,
        *,
        now: Now = _now,
        chance: Callable[[], float] = _CHANCE.random,
    ) -> None:
        self._settings, self._store, self._log = settings, store, log
        self._dropped, self._now, self._chance = dropped, now, chance
        self._own = tuple(map(compiled, settings.redact))
        self._queue: queue.Queue[Taken | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._ended = False
        self._day: date | None = None
        self._size = 0
        self._told_full = False
        self._failing = False  # the disk refused the last record

    def take(self, model: str, engine: str, exchange: Exchange, heard: Heard) -> None:
        """A request is over. Of the chats that went well a random share is kept."""
        if self._ended or heard.ended != "ok" or not isinstance(exchange.surface, OverChat):
            return
        if self._chance() >= self._settings.share:
            return
        if len(exchange.body) > LONGEST:
            return self._dropped("too_long")
        calls = tuple((name, "".join(parts)) for name, parts in exchange.audit.calls)
        thinking, body = exchange.policy.think.thinking, exchange.asked.body
        taken = Taken(new_id(), self._now(), model, engine, thinking, body, calls, heard.breaches, heard.wait)
        self._ensure_worker()
        try:
            self._queue.put_nowait(taken)
        except queue.Full:
            self._dropped("queue_full")

    def close(self) -> None:
        """Write what waits; bounded."""
        self._ended = True
        if self._thread is not None and self._thread.is_alive():
            with suppress(queue.Full):
                self._queue.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)

    def _ensure_worker(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        if self._thread is not None:
            self._dropped("worker_died")
            self._log.error("shadow_worker_died", reason="the thread ended; another one is started")
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (taken := self._queue.get()) is not None:
            self._attempt(taken)

    def _attempt(self, taken: Taken) -> None:
        """Write one record; whatever happens to it, the next one has its turn."""
        try:
            self._write(taken)
        except TooManySecrets:
            self._dropped("too_many_secrets")
        except OSError as error:
            self._dropped("disk")
            if not self._failing:
                self._failing = True
                self._log.warning(
                    "shadow_write_failed", code=errno.errorcode.get(error.errno or 0, "unknown")
                )
        except Exception as bug:
            self._dropped("error")
            self._log.warning("shadow_failed", **where(bug))

    def _write(self, taken: Taken) -> None:
        line = render(redacted(taken, self._own))
        day = taken.at.date()
        if day != self._day:
            self._store.forget_before(first_kept(day, self._settings.keep_days))
            self._size = self._store.size()
            self._day, self._told_full = day, False
        if not self._has_room(day, len(line)):
            return self._dropped("limit")
        self._store.append(day, line)
        self._size += len(line)
        if self._failing:
            self._failing = False
            self._log.warning("shadow_resumed", reason="records are written again")

    def _has_room(self, today: date, size: int) -> bool:
        """Older days make room; where today fills it all, nothing more is kept of today."""
        most = self._settings.max_mb * 1_000_000
        if self._size + size > most:
            self._size = self._store.size()  # somebody may have deleted records meanwhile
            for day in self._store.days():
                if day < today and self._size + size > most:
                    self._store.forget(day)
                    self._size = self._store.size()
        has_room = self._size + size <= most
        if not has_room and not self._told_full:
            self._told_full = True
            self._log.warning("shadow_full", count=self._size)
        return has_room


def new_id() -> str:
    """A record's id: 64 random bits in letters, for nothing in a record may look like a number."""
    return secrets.token_hex(8).translate(_LETTERS)
