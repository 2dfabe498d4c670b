"""Structured logs: one line an event, on stderr, as JSON or as text (`[log]`).

Only listed fields may be logged: names, numbers, ids, codes. No call site passes a
prompt, a reply, a header or a key, and any field that is not on the list is dropped, so
that a mistake loses a field instead of leaking one.
"""

import contextlib
import fcntl
import json
import logging
import re
import select
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import structlog

_encode = msgspec.json.Encoder(enc_hook=str).encode

FIELDS = frozenset(
    {
        "event", "level", "timestamp", "logger", "request_id", "model", "engine", "outcome", "status",
        "code", "seconds", "first_token", "first_content", "first_sentence", "completion_tokens",
        "prompt_tokens", "calls", "stripped", "breaches", "ignored_fields", "stream", "url", "state",
        "restarts", "last_error", "error", "path", "listener", "reason", "count", "queued",
        "phase", "artefact", "where", "thought_cut", "asked_again", "operation", "effect", "task", "key",
        "cached_tokens", "operator", "changed",
    }
)  # fmt: skip

Logger = structlog.typing.FilteringBoundLogger

LEVELS = ("debug", "info", "warning", "error")
_PLAIN = re.compile(r"[A-Za-z0-9_.:/+-]+")


class LogOutput:
    """Which lines are written, and how. A reload changes it while loggers are in use."""

    def __init__(self, level: str = "info", form: str = "json") -> None:
        self.change(level, form)

    def change(self, level: str, form: str) -> None:
        """From the next line on: lines of this level and above, as "json" or "text"."""
        self._least = LEVELS.index(level)
        self._encode = _encode if form == "json" else _text_line

    def line(self, _: Any, level: str, event: structlog.typing.EventDict) -> bytes:
        """The line. Raises DropEvent below the level."""
        if LEVELS.index(level) < self._least:
            raise structlog.DropEvent
        event["level"], event["timestamp"] = level, datetime.now(UTC)
        if not event.keys() <= FIELDS:
            event = {name: value for name, value in event.items() if name in FIELDS}
        try:
            return self._encode(event)
        except UnicodeEncodeError:  # half a surrogate pair in a name: a log raises for nothing
            return json.dumps(event, default=str).encode()


PIPE_BYTES = 1 << 20
"""What a pipe holds for a reader that is late: Linux gives nobody but root more."""


class _Writer:
    """Writes lines, and neither raises nor waits: a disk that is full, or a reader that is gone or has stopped reading,
    costs lines and no request. How many are lost is said as soon as there is a way again."""

    def __init__(self, stream: BinaryIO, output: LogOutput) -> None:
        self._stream: BinaryIO = getattr(stream, "raw", stream)  # a buffer would keep what cannot be written
        self._output = output
        self._lock = threading.Lock()
        self._lost = 0
        self._rest = b""  # of a line that has gone out in part
        self._room: Callable[[int], Any] | None = (
            None  # whether something can be written at once; None: always
        )
        with contextlib.suppress(OSError, ValueError):  # what is no file does not wait
            poll = select.poll()
            poll.register(stream.fileno(), select.POLLOUT)
            self._room = poll.poll
            if hasattr(fcntl, "F_SETPIPE_SZ"):
                fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def msg(self, line: bytes) -> None:
        """Write a line, if that can be done at once."""
        data = line + b"\n"
        with self._lock:
            if self._rest or self._lost or len(data) > select.PIPE_BUF:
                return self._catch_up(data)
            try:
                # Where there is room at all, a pipe has it for so many bytes.
                written = self._stream.write(data) if self._room is None or self._room(0) else 0
            except (OSError, ValueError):
                written = 0
            if not written:
                self._lost += 1
            elif written != len(data):
                self._rest = data[written:]

    def _catch_up(self, data: bytes) -> None:
        """Write what is left of a line, then how many were lost, then this one; as far as it goes."""
        self._rest = self._put(self._rest)
        if self._lost and not self._rest:
            told = self._told()
            rest = self._put(told)
            if rest and rest == told:
                self._lost += 1
                return
            self._rest, self._lost = rest, 0
        if self._rest or (rest := self._put(data)) == data:
            self._lost += 1
        else:
            self._rest = rest

    def _told(self) -> bytes:
        try:
            return (
                self._output.line(None, "warning", {"event": "log_lines_lost", "count": self._lost}) + b"\n"
            )
        except structlog.DropEvent:
            return b""

    def _put(self, data: bytes) -> bytes:
        """Write as much as goes at once; the rest."""
        while data:
            try:
                written = (
                    self._stream.write(data[: select.PIPE_BUF]) if self._room is None or self._room(0) else 0
                )
            except (OSError, ValueError):
                break
            if not written:
                break
            data = data[written:]
        return data


class _Lines(structlog.BoundLoggerBase):
    """structlog's filtering logger, for one processor that is called at once: in every request there is a line."""

    def _say(self, level: str, event: str, fields: dict[str, Any]) -> None:
        (process,) = self._processors
        try:
            line = process(self._logger, level, {"event": event, **fields})
        except structlog.DropEvent:
            return
        self._logger.msg(line)

    def debug(self, event: str, **fields: Any) -> None:
        self._say("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say("error", event, fields)


def configure(output: LogOutput | None = None, stream: BinaryIO | None = None) -> Logger:
    """Set up structlog and route the standard library's warnings through it."""
    output = output or LogOutput()
    writer = _Writer(stream or sys.stderr.buffer, output)
    structlog.configure(
        processors=[output.line],
        wrapper_class=_Lines,
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    for name in ("uvicorn", "uvicorn.error", "asyncio", "opentelemetry", "urllib3"):
        _quiet(logging.getLogger(name))
    logger: Logger = structlog.get_logger().bind()  # bound once: a lazy proxy binds at every line
    return logger


class _ToStructlog(logging.Handler):
    """Library warnings as one JSON line: the message's first line, and where it happened."""

    def emit(self, record: logging.LogRecord) -> None:
        line = next(iter(_told(record).splitlines()), "")
        facts = where(record.exc_info[1]) if record.exc_info and record.exc_info[1] else {}
        structlog.get_logger().warning("library", logger=record.name, reason=line[:200], **facts)


def _told(record: logging.LogRecord) -> str:
    """The message with its numbers, and without the texts that a library has put into it: those may be a caller's, as a
    malformed `tracestate` is in OpenTelemetry's."""
    if not isinstance(record.args, tuple):
        return str(record.msg)
    try:
        return str(record.msg) % tuple(arg if isinstance(arg, int | float) else "…" for arg in record.args)
    except (TypeError, ValueError):
        return str(record.msg)


def where(error: BaseException) -> dict[str, Any]:
    """Type and place of an unexpected error. Not its message: that may quote a caller's words."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": places}


def _quiet(logger: logging.Logger) -> None:
    logger.handlers = [_ToStructlog()]
    logger.setLevel(logging.WARNING)
    logger.propagate = False


def _text_line(event: structlog.typing.EventDict) -> bytes:
    """Time, level and event, then the fields as name=value. A value with anything but letters, digits and a few signs
    is written as JSON: no value can begin a line of its own."""
    head = (event.pop("timestamp").isoformat(timespec="milliseconds"), event.pop("level"), event.pop("event"))
    words = [_word(value) for value in head]
    fields = [f"{name}={_word(value)}" for name, value in event.items() if value is not None]
    return " ".join(words + fields).encode("ascii", "backslashreplace")


def _word(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(value, default=str)
