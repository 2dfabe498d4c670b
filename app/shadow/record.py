"""A record: a caller's request and its reply's calls, and its text where that is kept, redacted, as one line of JSON. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from app.telemetry.redact import Redactor
from gates.contracts import strict_json

SCHEMA: Final = "manners/shadow/v1"

SAMPLING: Final = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "max_tokens", "max_completion_tokens", "stop",
)  # fmt: skip
_SHAPES: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", *SAMPLING)


@dataclass(frozen=True, slots=True)
class FinishedChat:
    """A finished chat, not redacted: it is kept in memory only.

    `id` is random and independent of the caller's. `calls` are names and arguments as they were sent to the caller.
    `wait` is seconds to the first content, None if the reply was not streamed. `reply` is the text that the caller got,
    None if it is not to be kept; `consent`, in the operator's words, what callers have agreed to.
    """

    id: str
    at: datetime
    model: str
    engine: str
    thinking: bool
    body: Mapping[str, Any]
    calls: tuple[tuple[str, str], ...]
    breaches: frozenset[str]
    wait: float | None
    reply: str | None = None
    consent: str = ""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call. `arguments` is the JSON value, or the text if it is not JSON."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class ShadowRecord:
    """A record as it is stored. `at` is UTC, RFC 3339; `dropped` counts texts and values beyond the limits."""

    id: str
    at: str
    model: str
    engine: str
    thinking: bool
    request: Mapping[str, Any]
    calls: tuple[RecordedCall, ...]
    breaches: tuple[str, ...]
    first_content: float | None
    dropped: int = 0
    reply: str | None = None
    consent: str = ""

    @property
    def when(self) -> datetime:
        """The time of the reply's end."""
        return datetime.fromisoformat(self.at)


def redacted(chat: FinishedChat, own: Iterable[Any] = ()) -> ShadowRecord:
    """Redact a chat; `own` are the operator's RE2 patterns. Raises TooManySecrets."""
    redactor = Redactor(own)
    request: dict[str, Any] = {"messages": [redactor.message(m) for m in chat.body["messages"]]}
    for name in _SHAPES:
        if chat.body.get(name) is not None:
            shaped = redactor.schema({name: chat.body[name]})
            request |= shaped
    calls = tuple(RecordedCall(redactor.text(name), redactor.arguments(text)) for name, text in chat.calls)
    reply = None if chat.reply is None else redactor.text(chat.reply)
    return ShadowRecord(
        id=chat.id,
        at=chat.at.isoformat(timespec="milliseconds"),
        model=chat.model,
        engine=chat.engine,
        thinking=chat.thinking,
        request=request,
        calls=calls,
        breaches=tuple(sorted(chat.breaches)),
        first_content=None if chat.wait is None else round(chat.wait, 3),
        dropped=redactor.dropped,
        reply=reply,
        consent=chat.consent,
    )


def render(record: ShadowRecord) -> bytes:
    """The record as one line, with its line break."""
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


def parse(line: bytes) -> ShadowRecord | None:
    """Parse a line; None if it is incomplete or of another schema."""
    try:
        fields = strict_json.loads(line)
        if fields.pop("schema") != SCHEMA:
            return None
        calls = tuple(RecordedCall(**call) for call in fields.pop("calls"))
        record = ShadowRecord(**{**fields, "calls": calls, "breaches": tuple(fields["breaches"])})
        return record if record.when.tzinfo is not None and _is_sound(record) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_sound(record: ShadowRecord) -> bool:
    """Whether there are messages, and what is a text or a turn is one."""
    messages = record.request["messages"]
    texts = isinstance(record.consent, str) and isinstance(record.reply, str | None)
    return bool(messages) and texts and all(isinstance(message, dict) for message in messages)
