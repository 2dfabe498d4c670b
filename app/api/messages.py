"""`POST /v1/messages`, Anthropic's Messages API. Pure.

A reply is a list of content blocks. The engine counts tokens at the end of its stream, so
`message_start` reports zero and `message_delta` the count.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from app.api.chat_request import check_chat, refuse_unserved
from app.api.messages_request import MessagesRequest
from app.api.reading import read
from app.api.surface import Counts, OverChat, ParsedRequest
from app.api.unserved import MESSAGES
from app.errors.envelopes import ANTHROPIC_PATH, anthropic_error
from app.stream.encode import EventCollector, EventEncoder, ReplyHead
from app.stream.json_value import kind_of
from gates.reply.events import CallArguments, CallStart, Done, Event, Finish, Text, Thought, Usage

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "repetition": "max_tokens",  # vLLM's, of a reply that it cut off
    "tool_calls": "tool_use",
    "content_filter": "refusal",
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


def _tool_input(arguments: str) -> msgspec.Raw | dict[str, str]:
    """The arguments, unchanged; Anthropic's wrapping for those that are not a JSON object."""
    if kind_of(arguments or "{}") != "object":
        return {"INVALID_JSON": arguments}
    return msgspec.Raw((arguments or "{}").encode())


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _json({"type": name, **fields}))


class MessagesEncoder(EventEncoder):
    """Named events, message_start to message_stop."""

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._begun = False
        self._block = ""  # the kind that is open
        self._index = -1  # of the last block
        self._delta = b""  # what begins each delta of the open text
        self._finish: Finish | None = None

    def texts(self, texts: Sequence[str]) -> bytes:
        if self._block != "text" or self._inliner.is_on:
            return super().texts(texts)
        return b"".join([self._delta + _json(text) + b"}}\n\n" for text in texts])

    def fault(self, message: str, code: str, kind: str = "upstream_error") -> bytes:
        error = anthropic_error(message, code, 400 if kind == "invalid_request_error" else 500)
        return b"event: error\ndata: " + _json(error) + b"\n\n"

    def _encode(self, event: Event, out: list[bytes]) -> None:
        if type(event) is Text:
            self._open("text", {"text": ""}, out)
            out.append(self._delta + _json(event.text) + b"}}\n\n")
        elif type(event) is Thought:
            if self._head.reasoning == "separate" and event.text:
                self._open("thinking", {"thinking": "", "signature": ""}, out)
                self._more({"type": "thinking_delta", "thinking": event.text}, out)
        elif type(event) is CallStart:
            self._close(out)
            self._open("tool_use", {"id": event.id, "name": event.name, "input": {}}, out)
        elif type(event) is CallArguments and self._block == "tool_use":
            self._more({"type": "input_json_delta", "partial_json": event.fragment}, out)
        elif type(event) is Finish:
            self._begin(out)
            self._close(out)
            self._finish = event
        elif type(event) is Done:
            delta = {"delta": _stop(self._finish), "usage": _usage(self._usage)}
            out += [_event("message_delta", delta), _event("message_stop", {})]

    def _begin(self, out: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            out.append(_event("message_start", {"message": _message(self._head, [], None, None)}))

    def _open(self, kind: str, fields: dict[str, Any], out: list[bytes]) -> None:
        """The block that this belongs to, opened unless it is."""
        if self._block == kind:
            return
        self._begin(out)
        self._close(out)
        self._block, self._index = kind, self._index + 1
        block = {"type": kind, **fields}
        out.append(_event("content_block_start", {"index": self._index, "content_block": block}))
        self._delta = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"text_delta","text":' % self._index
        )

    def _more(self, delta: dict[str, Any], out: list[bytes]) -> None:
        out.append(_event("content_block_delta", {"index": self._index, "delta": delta}))

    def _close(self, out: list[bytes]) -> None:
        if self._block:
            self._block = ""
            out.append(_event("content_block_stop", {"index": self._index}))


class MessagesCollector(EventCollector):
    """One Message."""

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._blocks: list[tuple[dict[str, Any], list[str]]] = []  # and their texts, to be joined

    def _take(self, event: Event) -> None:
        if type(event) is Text:
            self._part("text").append(event.text)
        elif type(event) is Thought:
            if self._head.reasoning == "separate" and event.text:
                self._part("thinking").append(event.text)
        elif type(event) is CallStart:
            self._blocks.append(({"type": "tool_use", "id": event.id, "name": event.name}, []))
        elif type(event) is CallArguments and self._blocks and self._blocks[-1][0]["type"] == "tool_use":
            self._blocks[-1][1].append(event.fragment)

    def _part(self, kind: str) -> list[str]:
        if not self._blocks or self._blocks[-1][0]["type"] != kind:
            self._blocks.append(({"type": kind}, []))
        return self._blocks[-1][1]

    def message(self) -> bytes:
        content = [_block(block, "".join(parts)) for block, parts in self._blocks]
        return _json(_message(self._head, content, self._finish, self._usage))


def _block(block: dict[str, Any], text: str) -> dict[str, Any]:
    if block["type"] == "tool_use":
        return {**block, "input": _tool_input(text)}
    if block["type"] == "thinking":
        return {**block, "thinking": text, "signature": ""}
    return {**block, "text": text}


class Messages(OverChat):
    """Anthropic's surface."""

    path = ANTHROPIC_PATH
    id_prefix = "msg_"
    request = MessagesRequest
    encoder, collector = MessagesEncoder, MessagesCollector
    keepalive = b'event: ping\ndata: {"type":"ping"}\n\n'

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        """The chat completion that is asked for in Anthropic's words."""
        asked = read(MessagesRequest, raw, "messages", max_messages)
        refuse_unserved(asked.extra, MESSAGES)
        body = asked.chat_body()
        return ParsedRequest(check_chat(body, max_messages), body, asked.dropped)
