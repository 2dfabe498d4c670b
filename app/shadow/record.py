"""A record: a caller's request and its reply's calls, which are redacted before they are written. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from app.telemetry.redact import Redactor

SCHEMA: Final = "manners/shadow/v1"

SAMPLING: Final = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "max_tokens", "max_completion_tokens", "stop",
)  # fmt: skip
_SHAPES: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", *SAMPLING)


class RecordedCall(msgspec.Struct, frozen=True):
    """A tool call. `arguments` is the JSON value, or the text if it is not JSON."""

    name: str
    arguments: Any


class ShadowRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """A finished chat; as it is stored once it is `redacted`."""

    id: str
    """Random, and independent of the caller's."""
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    """The time of the reply's end, in UTC."""
    model: str
    engine: str
    thinking: bool
    request: dict[str, Any]
    calls: tuple[RecordedCall, ...] = ()
    breaches: tuple[str, ...] = ()
    first_content: float | None = None
    """Seconds; None: the reply was not streamed."""
    dropped: int = 0
    """Texts and values beyond the limits of redaction."""


def redacted(chat: ShadowRecord, own: Iterable[Any] = ()) -> ShadowRecord:
    """Redact a chat, whose calls' arguments are text; `own` are the operator's RE2 patterns. Raises TooManySecrets."""
    redactor = Redactor(own)
    request: dict[str, Any] = {"messages": [redactor.message(m) for m in chat.request["messages"]]}
    for name in _SHAPES:
        if chat.request.get(name) is not None:
            request |= redactor.value({name: chat.request[name]}, numbers_go=True)
    calls = tuple(
        RecordedCall(redactor.text(call.name), redactor.arguments(call.arguments)) for call in chat.calls
    )
    return msgspec.structs.replace(chat, request=request, calls=calls, dropped=redactor.dropped)
