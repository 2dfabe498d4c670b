"""Structured logs: one line an event, on stderr, as JSON or as text (`[log]`).

Only listed fields may be logged: names, numbers, ids, codes. No call site passes a
prompt, a reply, a header or a key, and any field that is not on the list is dropped, so
that a mistake loses a field instead of leaking one.
"""

import json
import logging
import re
import sys
import traceback
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
        self._encode = _json_line if form == "json" else _text_line

    def line(self, _: Any, level: str, event: structlog.typing.EventDict) -> bytes:
        """The line. Raises DropEvent below the level."""
        if LEVELS.index(level) < self._least:
            raise structlog.DropEvent
        event["level"], event["timestamp"] = level, datetime.now(UTC)
        if not event.keys() <= FIELDS:
            event = {name: value for name, value in event.items() if name in FIELDS}
        return self._encode(event)


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
    structlog.configure(
        processors=[output.line],
        wrapper_class=_Lines,
        logger_factory=structlog.BytesLoggerFactory(stream or sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )
    for name in ("uvicorn", "uvicorn.error", "asyncio", "aiohttp", "opentelemetry", "urllib3"):
        _quiet(logging.getLogger(name))
    logger: Logger = structlog.get_logger().bind()  # bound once: a lazy proxy binds at every line
    return logger


class _ToStructlog(logging.Handler):
    """Library warnings as one JSON line: the message's first line, and where it happened."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage().splitlines()[0] if record.getMessage() else ""
        facts = where(record.exc_info[1]) if record.exc_info and record.exc_info[1] else {}
        structlog.get_logger().warning("library", logger=record.name, reason=line[:200], **facts)


def where(error: BaseException) -> dict[str, Any]:
    """Type and place of an unexpected error. Not its message: that may quote a caller's words."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": places}


def _quiet(logger: logging.Logger) -> None:
    logger.handlers = [_ToStructlog()]
    logger.setLevel(logging.WARNING)
    logger.propagate = False


def _json_line(event: structlog.typing.EventDict) -> bytes:
    return _encode(event)


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
