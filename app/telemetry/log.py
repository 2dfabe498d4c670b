"""Structured logs: one line an event, on stderr, as JSON.

Only the fields in `FIELDS` are logged: names, numbers, ids, codes. Other fields are dropped, so that a mistake in a call
loses a field and does not leak a prompt, a reply, a header or a key.
"""

import asyncio
import contextlib
import fcntl
import json
import logging
import select
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import structlog

from deploy.core.tasks import TASK

_encode = msgspec.json.Encoder(enc_hook=str).encode

FIELDS = frozenset(
    {
        "event", "level", "timestamp", "logger", "request_id", "model", "engine", "outcome", "status",
        "code", "seconds", "first_token", "first_content", "first_sentence", "completion_tokens",
        "prompt_tokens", "calls", "stripped", "breaches", "ignored_fields", "stream", "url", "state",
        "restarts", "last_error", "error", "path", "listener", "reason", "count", "queued",
        "phase", "artefact", "where", "thought_cut", "operation", "effect", "task", "key",
        "cached_tokens", "operator", "changed",
    }
)  # fmt: skip

Logger = structlog.typing.FilteringBoundLogger

OTHER: Final = "other"  # outside of `deploy.core.tasks`: a callback, or a task that was never awaited
THREAD: Final = "thread"

PIPE_BYTES = 1 << 20  # held by a pipe for a late reader: the most that Linux gives to other users than root


def _line(_: Any, level: str, event: structlog.typing.EventDict) -> bytes:
    event["level"], event["timestamp"] = level, datetime.now(UTC)
    if not event.keys() <= FIELDS:
        event = {name: value for name, value in event.items() if name in FIELDS}
    try:
        return _encode(event)
    except UnicodeEncodeError:  # half a surrogate pair in a name
        return json.dumps(event, default=str).encode()


class _Writer:
    """Writes lines. It never raises or waits: if the disk is full, or the reader of a pipe is gone or late, lines are lost.

    As soon as it can write again, it says how many were. Meanwhile it holds the rest of one line.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: BinaryIO = getattr(stream, "raw", stream)  # a buffer would keep what cannot be written
        self._lock = threading.Lock()
        self._lost = 0
        self._rest = b""
        self._room: Callable[[int], Any] = lambda _: True  # whether the stream takes PIPE_BUF bytes at once
        with contextlib.suppress(OSError, ValueError):  # only a file can block
            poll = select.poll()
            poll.register(stream.fileno(), select.POLLOUT)
            self._room = poll.poll
            fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def msg(self, line: bytes) -> None:
        """Write a line, if that is possible at once."""
        with self._lock:
            if self._rest:
                self._put(b"")
            if self._rest:
                self._lost += 1
                return
            if self._lost:
                self._put(_line(None, "warning", {"event": "log_lines_lost", "count": self._lost}) + b"\n")
                self._lost = 0
            self._put(line + b"\n")

    debug = info = warning = error = msg

    def _put(self, data: bytes) -> None:
        """Write as much as goes at once; the rest waits."""
        data = self._rest + data
        try:  # no `suppress`: it runs in every request
            while data and self._room(0) and (written := self._stream.write(data[: select.PIPE_BUF])):
                data = data[written:]
        except (OSError, ValueError):
            pass
        self._rest = data


def configure(level: str = "info", stream: BinaryIO | None = None) -> Logger:
    """Set up structlog for lines of this level and above, and route the standard library's warnings through it."""
    writer = _Writer(stream or sys.stderr.buffer)
    structlog.configure(
        processors=[_line],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=partial(dict, event=""),  # type: ignore[arg-type]  # the first field of a line
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    for name in ("uvicorn", "uvicorn.error", "asyncio", "opentelemetry", "urllib3"):
        library = logging.getLogger(name)
        library.handlers, library.propagate = [_ToStructlog(logging.WARNING)], False
        library.setLevel(logging.WARNING)
    logger: Logger = structlog.get_logger().bind()  # the lazy proxy would bind again for every line
    return logger


class _ToStructlog(logging.Handler):
    """A library's warning as one line: the first line of its message, and where it happened."""

    def emit(self, record: logging.LogRecord) -> None:
        line = str(record.msg).partition("\n")[0]  # without its arguments: they may quote a caller
        facts = where(record.exc_info[1]) if record.exc_info and record.exc_info[1] else {}
        structlog.get_logger().warning("library", logger=record.name, reason=line[:200], **facts)


def where(error: BaseException) -> dict[str, Any]:
    """Type and place of an unexpected error. Not its message: that may quote a caller's words."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": places}


def watch_failures(loop: asyncio.AbstractEventLoop, log: Logger, count: Callable[[str], None]) -> None:
    """Log every failure in the background of `loop`, and of any thread; call `count` with its name."""

    def failed(name: str, error: BaseException) -> None:
        count(name)
        log.error("task_failed", task=name, **where(error))

    def of_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            failed(str(context.get(TASK, OTHER)), error)
        else:
            loop.default_exception_handler(context)

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if isinstance(args.exc_value, Exception):  # SystemExit ends a thread in order
            failed(THREAD, args.exc_value)

    loop.set_exception_handler(of_loop)
    threading.excepthook = of_thread
