"""Recorded chats as training conversations, only with the callers' consent. Pure.

A record may be used if the operator had stated the callers' consent when it was made, states the same now, and had
enabled recording of the reply's text. A record in which today's patterns find something to redact is not used: a second
placeholder could stand for another value than the first.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.shadow.record import ShadowRecord
from app.telemetry.redact import Redactor, TooManySecrets

_FORCING: Final = ("response_format",)
"""Request fields that prescribe the reply's form."""


def reason_against(record: ShadowRecord, consent: str, own: Sequence[Any]) -> str:
    """Why a record may not be used; "" if it may. own: the operator's RE2 patterns."""
    if not record.consent or record.consent != consent:
        return "no consent" if not record.consent else "another consent"
    if record.reply is None:
        return "reply not kept"
    if record.breaches:
        return f"breach: {record.breaches[0]}"
    if record.dropped:
        return "cut at the recorder's limits"
    choice = record.request.get("tool_choice")
    if choice not in (None, "auto", "none") or any(name in record.request for name in _FORCING):
        return "forced form"
    return "" if _is_clean(record, own) else "more to redact"


def as_row(record: ShadowRecord) -> dict[str, Any]:
    """The record as a row: the request, and the reply as the caller got it. Records hold no thoughts."""
    reply: dict[str, Any] = {"role": "assistant", "content": record.reply or ""}
    if record.calls:
        reply["tool_calls"] = [
            {
                "id": f"call_{record.id}_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": _as_text(call.arguments)},
            }
            for number, call in enumerate(record.calls)
        ]
    row: dict[str, Any] = {"id": record.id, "messages": [*record.request["messages"], reply]}
    if record.request.get("tools"):
        row["tools"] = record.request["tools"]
    return row | {"chat_template_kwargs": {"enable_thinking": False}}


def _is_clean(record: ShadowRecord, own: Sequence[Any]) -> bool:
    redactor = Redactor(own)
    messages: list[Mapping[str, Any]] = as_row(record)["messages"]
    try:
        return (
            all(redactor.message(dict(message)) == message for message in messages) and not redactor.dropped
        )
    except TooManySecrets:
        return False


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
