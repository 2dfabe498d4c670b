"""A record: a caller's request and its reply's calls, redacted, as one line of JSON. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from app.telemetry.redact import Redactor
from gates.contracts import strict_json
from gates.decode.decoder import convert

SCHEMA: Final = "manners/shadow/v1"

SAMPLING: Final = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "max_tokens", "max_completion_tokens", "stop",
)  # fmt: skip
_SHAPES: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", *SAMPLING)


@dataclass(frozen=True, slots=True)
class FinishedChat:
    """A finished chat, not redacted: it is kept in memory only."""

    id: str  # random, and independent of the caller's
    at: datetime
    model: str
    engine: str
    thinking: bool
    body: Mapping[str, Any]
    calls: tuple[tuple[str, str], ...]  # names and arguments as they were sent to the caller
    breaches: frozenset[str]
    wait: float | None  # seconds to the first content; None: the reply was not streamed


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

    @property
    def when(self) -> datetime:
        """The time of the reply's end."""
        return datetime.fromisoformat(self.at)


@dataclass(frozen=True, slots=True)
class ReplayedReply:
    """A reply as a caller would have received it.

    `breaches` are the names of `ReplyAudit.breaches`, and `error` if the engine failed the request.
    `lost`: the connection failed, which says nothing about the engine.
    """

    calls: tuple[RecordedCall, ...] = ()
    breaches: frozenset[str] = frozenset()
    lost: bool = False


def redacted(chat: FinishedChat, own: Iterable[Any] = ()) -> ShadowRecord:
    """Redact a chat; `own` are the operator's RE2 patterns. Raises TooManySecrets."""
    redactor = Redactor(own)
    request: dict[str, Any] = {"messages": [redactor.message(m) for m in chat.body["messages"]]}
    for name in _SHAPES:
        if chat.body.get(name) is not None:
            request |= redactor.value({name: chat.body[name]}, numbers_go=True)
    calls = tuple(RecordedCall(redactor.text(name), redactor.arguments(text)) for name, text in chat.calls)
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
    )


def render(record: ShadowRecord) -> bytes:
    """The record as one line, with its line break."""
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


def parse(line: bytes) -> ShadowRecord | None:
    """Parse a line; None if it is incomplete, damaged or of another schema."""
    try:
        fields = strict_json.loads(line)
        if fields.pop("schema") != SCHEMA:
            return None
        record = convert(fields, ShadowRecord)
        messages = convert(record.request["messages"], list[dict[str, Any]])
        return record if messages and record.when.tzinfo is not None else None
    except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError):
        return None
