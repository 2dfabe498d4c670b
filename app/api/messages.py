"""`POST /v1/messages`, Anthropic's Messages API. Pure.

A reply is a list of content blocks. The engine counts tokens at the end of its stream, so
`message_start` reports zero and `message_delta` the count.
"""

from typing import Any

import msgspec

from app.api.items import ItemCollector
from app.api.messages_request import MessagesRequest
from app.api.surface import Counts, OverChat, ParsedRequest
from app.errors.tree import ANTHROPIC_PATH, anthropic_error
from app.stream.encode import ReplyHead
from app.stream.json_value import kind_of
from gates.reply.events import CallStart, Finish, Usage

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "repetition": "max_tokens",  # vLLM's, of a reply that it cut off
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_DELTAS = {
    "text": (b"text_delta", b"text"),
    "thinking": (b"thinking_delta", b"thinking"),
    "tool_use": (b"input_json_delta", b"partial_json"),
}
_json = msgspec.json.Encoder().encode


def _message(
    head: ReplyHead, content: list[Any], finish: Finish | None, usage: Usage | None
) -> dict[str, Any]:
    shared = {"id": head.id, "type": "message", "role": "assistant", "model": head.model}
    return {**shared, "content": content, **_stop(finish), "usage": _usage(usage)}


def _stop(finish: Finish | None) -> dict[str, Any]:
    if finish is None:
        return {"stop_reason": None, "stop_sequence": None}
    if finish.stop is not None and finish.reason == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": finish.stop}
    return {"stop_reason": _STOP_REASONS.get(finish.reason, "end_turn"), "stop_sequence": None}


def _usage(usage: Usage | None) -> dict[str, int]:
    """Anthropic's `input_tokens` leave out those from the cache."""
    counts = Counts.of(usage)
    return {
        "input_tokens": counts.given - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": counts.made,
    }


def _block(kind: str, text: str, call: CallStart | None) -> dict[str, Any]:
    if call is not None:
        # The arguments, unchanged; Anthropic's wrapping for those that are not a JSON object.
        is_object = kind_of(text or "{}") == "object"
        made = msgspec.Raw((text or "{}").encode()) if is_object else {"INVALID_JSON": text}
        return {"type": kind, "id": call.id, "name": call.name, "input": made}
    return {"type": kind, kind: text, **({"signature": ""} if kind == "thinking" else {})}


class MessagesCollector(ItemCollector):
    """One Message."""

    names = ("text", "thinking", "tool_use")

    def message(self) -> bytes:
        """The Message as JSON."""
        content = [_block(kind, "".join(parts), call) for kind, parts, call in self._items]
        return _json(_message(self._head, content, self._finish, self._usage))


class MessagesEncoder(MessagesCollector):
    """Named events, message_start to message_stop."""

    _is_begun = False
    _delta = b""  # what begins each delta of the open block

    def fault(self, message: str, code: str, kind: str = "upstream_error") -> bytes:
        error = anthropic_error(message, code, 400 if kind == "invalid_request_error" else 500)
        return b"event: error\ndata: " + _json(error) + b"\n\n"

    def _open(self, out: list[bytes]) -> None:
        self._start(out)
        index = len(self._items) - 1
        fields = {"index": index, "content_block": _block(self._kind, "", self._call)}
        self._emit("content_block_start", fields, out)
        delta, field = _DELTAS[self._kind]
        self._delta = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"%b","%b":' % (index, delta, field)
        )

    def _more(self, text: str, out: list[bytes]) -> None:
        out.append(self._delta + _json(text) + b"}}\n\n")

    def _close(self, out: list[bytes]) -> None:
        self._emit("content_block_stop", {"index": len(self._items) - 1}, out)

    def _done(self, out: list[bytes]) -> None:
        self._start(out)
        self._emit("message_delta", {"delta": _stop(self._finish), "usage": _usage(self._usage)}, out)
        self._emit("message_stop", {}, out)

    def _start(self, out: list[bytes]) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._emit("message_start", {"message": _message(self._head, [], None, None)}, out)

    def _emit(self, name: str, fields: dict[str, Any], out: list[bytes]) -> None:
        out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), _json({"type": name, **fields})))


class Messages(OverChat):
    """Anthropic's surface."""

    path = ANTHROPIC_PATH
    id_prefix = "msg_"
    request = MessagesRequest
    encoder, collector = MessagesEncoder, MessagesCollector

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        return MessagesRequest.parsed(raw, max_messages)
