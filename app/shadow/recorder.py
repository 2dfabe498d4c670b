"""Records a random share of the finished chats; a worker thread redacts and writes them.

The event loop only draws a random number, independent of the caller's `x-request-id`, and puts the chat into a queue.
"""

import queue
import random
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal

from app.config.config import Config, Shadow
from app.proxy.context import RequestContext
from app.shadow.record import ShadowRecord, redacted
from app.shadow.store import Store
from app.telemetry.log import Logger, where
from app.telemetry.redact import TooManySecrets, compiled
from app.telemetry.reply_window import ReplyOutcome

WAITING: Final = 64
"""The capacity of the queue."""
LONGEST: Final = 128 << 10
"""The longest request in bytes that is redacted; a longer one would hold the GIL for too long."""
CLOSE_SECONDS: Final = 5.0

_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")

Dropped = Literal["queue_full", "too_long", "too_many_secrets", "disk", "limit", "error"]
"""Why a record was dropped; `limit` is `max_mb`."""


def recorder_for(config: Config, log: Logger, dropped: Callable[[Dropped], None]) -> "Recorder | None":
    """Create the recorder if it is configured. Old records are deleted in any case."""
    store = Store(config.state_dir)
    with suppress(OSError):
        store.forget(datetime.now(UTC).date(), config.shadow.keep_days)
    return Recorder(config.shadow, store, log, dropped) if config.shadow.record else None


class Recorder:
    """Records finished chats. Call `close` when the gateway ends."""

    def __init__(
        self, settings: Shadow, store: Store, log: Logger, dropped: Callable[[Dropped], None]
    ) -> None:
        self._settings, self._store, self._log, self._dropped = settings, store, log, dropped
        self._chance = random.SystemRandom().random
        self._own = tuple(map(compiled, settings.redact))
        self._queue: queue.Queue[ShadowRecord | None] = queue.Queue(WAITING)
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        self._thread.start()

    def take(self, context: RequestContext, reply: ReplyOutcome) -> None:
        """Handle a finished request: a random share of the successful chats is recorded."""
        if self._ended or reply.ended != "ok" or not context.surface.is_chat:
            return
        if context.parsed.chat.media or self._chance() >= self._settings.share:  # a record holds text only
            return
        if len(context.body) > LONGEST:
            return self._dropped("too_long")
        chat = ShadowRecord(
            id=secrets.token_hex(8).translate(_LETTERS),  # letters, because numbers would be redacted
            at=datetime.now(UTC),
            model=context.parsed.chat.model,
            engine=context.engine,
            thinking=context.policy.think.thinking,
            request=context.parsed.body,
        )
        try:
            self._queue.put_nowait(chat)
        except queue.Full:
            self._dropped("queue_full")

    def close(self) -> None:
        """Write the queued records; takes at most CLOSE_SECONDS for each of its two steps."""
        self._ended = True
        with suppress(queue.Full):
            self._queue.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (chat := self._queue.get()) is not None:
            self._write(chat)

    def _write(self, chat: ShadowRecord) -> None:
        """Write one record; an error is counted and does not stop the worker."""
        try:
            record = redacted(chat, self._own)
            self._store.forget(chat.at.date(), self._settings.keep_days)
            if not self._store.append(record, self._settings.max_mb * 1_000_000):
                self._dropped("limit")
        except TooManySecrets:
            self._dropped("too_many_secrets")
        except OSError:
            self._dropped("disk")
        except Exception as bug:
            self._dropped("error")
            self._log.warning("shadow_failed", **where(bug))
