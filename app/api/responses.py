"""`POST /v1/responses`, OpenAI's Responses API. Pure.

A response is a list of output items: reasoning (where it is shown), messages and function calls. A stream has a
numbered event for every step; a whole reply is built in the same way, without events.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from app.api.items import ItemEncoder
from app.api.responses_request import ResponsesRequest
from app.api.surface import Counts, OverChat, ParsedRequest
from app.stream.encode import ReplyHead
from gates.reply.events import CallStart, Usage

_INCOMPLETE = {
    "length": "max_output_tokens",
    "repetition": "max_output_tokens",  # vLLM's, of a reply that it cut off
    "content_filter": "content_filter",
}
_MARKS = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "message": ("output_text", {"logprobs": []}),
    "reasoning": ("reasoning_text", {}),
    "function_call": ("function_call_arguments", {}),
}
"""For each kind of item: the name in its text events, and their further fields."""
_json = msgspec.json.Encoder().encode


def _item(kind: str, parts: list[dict[str, Any]], arguments: str = "") -> dict[str, Any]:
    """The fields of an output item, by its kind."""
    if kind == "function_call":
        return {"arguments": arguments}
    return {"role": "assistant", "content": parts} if kind == "message" else {"summary": [], "content": parts}


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "message":
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"type": "reasoning_text", "text": text}


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    counts = Counts.of(usage)
    return {
        "input_tokens": counts.given,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.made,
        "output_tokens_details": {"reasoning_tokens": counts.thought},
        "total_tokens": counts.given + counts.made,
    }


class ResponsesEncoder(ItemEncoder):
    """The response as it grows; `_emit` sends a step of it."""

    names = ("message", "reasoning", "function_call")

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._items: list[dict[str, Any]] = []  # those that are over
        self._item: dict[str, Any] = {}  # the open one, without its text
        self._place: dict[str, Any] = {}  # where its text stands
        self._parts: list[str] = []  # of its text
        self._number = 0  # of the next event

    def texts(self, texts: Sequence[str]) -> bytes:
        if self._kind != "message" or self._inliner.is_on:
            return super().texts(texts)
        out: list[bytes] = []
        self._more("".join(texts), out)
        return b"".join(out)

    def fault(self, message: str, code: str, kind: str = "upstream_error") -> bytes:
        """The end of a response that broke off: `code` stays in OpenAI's words, `type` is ours."""
        out: list[bytes] = []
        error = {"code": "server_error", "message": message, "type": code}
        self._emit("failed", {"response": {**self._response("failed"), "error": error}}, out)
        return b"".join(out)

    @property
    def _status(self) -> str:
        """The status of a finished response."""
        return "incomplete" if self._finish and self._finish.reason in _INCOMPLETE else "completed"

    def _response(self, status: str) -> dict[str, Any]:
        """The whole response as it is now."""
        reason = _INCOMPLETE.get(self._finish.reason) if self._finish and status != "in_progress" else None
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            **self._head.echo,
            "model": self._head.model,
            "output": self._items,
            "usage": _usage(self._usage) if status in ("completed", "incomplete") else None,
        }

    def _open(self, kind: str, out: list[bytes], call: CallStart | None = None) -> None:
        self._kind, self._parts = kind, []
        unique = self._head.id.partition("_")[2]
        item_id = f"{_MARKS[kind]}_{unique}{len(self._items)}"
        self._item = {"type": kind, "id": item_id, "status": "in_progress"}
        self._place = {"item_id": item_id, "output_index": len(self._items)}
        if call is None:
            self._place["content_index"] = 0
        else:
            self._item |= {"call_id": call.id, "name": call.name}
        added = {**self._item, **_item(kind, [])}
        self._emit("output_item.added", {"output_index": len(self._items), "item": added}, out)
        if call is None:
            self._emit("content_part.added", {**self._place, "part": _part(kind, "")}, out)

    def _more(self, text: str, out: list[bytes]) -> None:
        self._parts.append(text)
        name, more = _TEXTS[self._kind]
        self._emit(f"{name}.delta", {**self._place, "delta": text, **more}, out)

    def _close(self, out: list[bytes], status: str = "completed") -> None:
        if not self._kind:
            return
        kind, text, (name, more) = self._kind, "".join(self._parts), _TEXTS[self._kind]
        if kind == "function_call":
            done = {"name": self._item["name"], "arguments": text}
            self._emit(f"{name}.done", {**self._place, **done}, out)
        else:
            self._emit(f"{name}.done", {**self._place, "text": text, **more}, out)
            self._emit("content_part.done", {**self._place, "part": _part(kind, text)}, out)
        item = {**self._item, "status": status, **_item(kind, [_part(kind, text)], text)}
        self._kind, index = "", len(self._items)
        self._items.append(item)
        self._emit("output_item.done", {"output_index": index, "item": item}, out)

    def _end(self, out: list[bytes]) -> None:
        if not self._items and not self._kind:
            self._open("message", out)  # a reply without a word is a message all the same
        self._close(out, self._status)

    def _done(self, out: list[bytes]) -> None:
        self._emit(self._status, {"response": self._response(self._status)}, out)

    def _emit(self, name: str, fields: dict[str, Any], out: list[bytes]) -> None:
        if self._number == 0:
            begun = {"response": self._response("in_progress")}
            out += [self._frame("created", begun), self._frame("in_progress", begun)]
        out.append(self._frame(name, fields))

    def _frame(self, name: str, fields: dict[str, Any]) -> bytes:
        data = _json({"type": f"response.{name}", **fields, "sequence_number": self._number})
        self._number += 1
        return b"event: response.%b\ndata: %b\n\n" % (name.encode(), data)


class ResponsesCollector(ResponsesEncoder):
    """The Response, without events."""

    def _emit(self, name: str, fields: dict[str, Any], out: list[bytes]) -> None:
        pass

    def message(self) -> bytes:
        """The Response as JSON."""
        return _json(self._response(self._status))


class Responses(OverChat):
    """OpenAI's newer surface."""

    path = "/v1/responses"
    id_prefix = "resp_"
    request = ResponsesRequest
    encoder, collector = ResponsesEncoder, ResponsesCollector

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        return ResponsesRequest.parsed(raw, max_messages)
