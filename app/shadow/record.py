"""A record: a caller's request, which is redacted before it is written. Pure."""

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
    dropped: int = 0
    """Texts and values beyond the limits of redaction."""


def redacted(chat: ShadowRecord, own: Iterable[Any] = ()) -> ShadowRecord:
    """Redact a chat; `own` are the operator's RE2 patterns. Raises TooManySecrets."""
    redactor = Redactor(own)
    request: dict[str, Any] = {"messages": [redactor.message(m) for m in chat.request["messages"]]}
    for name in _SHAPES:
        if chat.request.get(name) is not None:
            request |= redactor.value({name: chat.request[name]}, numbers_go=True)
    return msgspec.structs.replace(chat, request=request, dropped=redactor.dropped)
