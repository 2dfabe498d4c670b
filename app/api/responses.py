"""`POST /v1/responses`, OpenAI's Responses API. Pure.

A response is a list of output items: reasoning (where it is shown), messages and function calls. `_ResponseBuilder`
builds them for streamed and whole replies alike; a stream also gets a numbered event for every step.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from app.api.chat_request import check_chat
from app.api.reading import read
from app.api.responses_request import ResponsesRequest
from app.api.surface import Counts, OverChat, ParsedRequest
from app.stream.encode import Inliner, ReplyHead
from gates.reply.events import Broken, CallArguments, CallStart, Done, Event, Finish, Text, Thought, Usage

Step = tuple[str, dict[str, Any]]
"""A streamed event's type, and its fields."""

_INCOMPLETE = {
    "length": "max_output_tokens",
    "repetition": "max_output_tokens",  # vLLM's, of a reply that it cut off
    "content_filter": "content_filter",
}
_TEXT = {"type": "output_text", "annotations": [], "logprobs": []}
_BEGUN: dict[str, dict[str, Any]] = {
    "message": {"role": "assistant", "content": []},
    "reasoning": {"summary": [], "content": []},
    "function_call": {},
}
_json = msgspec.json.Encoder().encode


class _ResponseBuilder:
    """The response as it grows. Every method returns the events of a streamed one."""

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._items: list[dict[str, Any]] = []  # those that are over
        self._item: dict[str, Any] = {}  # the open one; {}: none
        self._parts: list[str] = []  # of its text
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        self._inliner = Inliner(head.reasoning)

    @property
    def is_speaking(self) -> bool:
        """Whether a text is open, and the next text is a delta of it and no more."""
        return self._item.get("type") == "message" and not self._inliner.is_on

    @property
    def place(self) -> dict[str, Any]:
        """Where the open item stands."""
        return {"item_id": self._item["id"], "output_index": len(self._items)}

    def say(self, text: str) -> None:
        """More of the open text, the short way."""
        self._parts.append(text)

    def feed(self, events: Sequence[Event]) -> Iterator[Step]:
        for event in self._inliner.feed(events):
            yield from self._take(event)

    def fail(self, message: str, code: str) -> Step:
        """The end of a response that broke off: `code` stays in OpenAI's words, `type` is ours."""
        error = {"code": "server_error", "message": message, "type": code}
        return "response.failed", {"response": {**self.response("failed"), "error": error}}

    def response(self, status: str) -> dict[str, Any]:
        """The whole response as it is now."""
        reason = _INCOMPLETE.get(self._finish.reason) if self._finish else None
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

    @property
    def status(self) -> str:
        """The status of a finished response."""
        return "incomplete" if self._finish and self._finish.reason in _INCOMPLETE else "completed"

    def _take(self, event: Event) -> Iterator[Step]:
        if type(event) is Text:
            yield from self._open("message")
            yield "response.output_text.delta", self._delta(event.text, logprobs=[])
        elif type(event) is Thought:
            if self._head.reasoning == "separate" and event.text:
                yield from self._open("reasoning")
                yield "response.reasoning_text.delta", self._delta(event.text)
        elif type(event) is CallStart:
            yield from self._close("completed")
            yield from self._open("function_call", call_id=event.id, name=event.name, arguments="")
        elif type(event) is CallArguments and self._item.get("type") == "function_call":
            self._parts.append(event.fragment)
            yield "response.function_call_arguments.delta", {**self.place, "delta": event.fragment}
        elif type(event) is Finish:
            self._finish = event
            if not self._items and not self._item:
                yield from self._open("message")  # a reply without a word is a message all the same
            yield from self._close(self.status)
        elif type(event) is Usage:
            self._usage = event
        elif type(event) is Broken:
            yield self.fail(event.message, event.code)
        elif type(event) is Done:
            yield f"response.{self.status}", {"response": self.response(self.status)}

    def _delta(self, text: str, **more: Any) -> dict[str, Any]:
        self._parts.append(text)
        return {**self.place, "content_index": 0, "delta": text, **more}

    def _open(self, kind: str, **fields: Any) -> Iterator[Step]:
        """The item that this belongs to, opened unless it is."""
        if self._item.get("type") == kind:
            return
        yield from self._close("completed")
        mark = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        unique = self._head.id.partition("_")[2]
        self._item = {
            "type": kind,
            "id": f"{mark}_{unique}{len(self._items)}",
            "status": "in_progress",
            **fields,
        }
        item = {**self._item, **_BEGUN[kind]}
        yield "response.output_item.added", {"output_index": len(self._items), "item": item}
        if kind != "function_call":
            yield "response.content_part.added", {**self.place, "content_index": 0, "part": _part(kind, "")}

    def _close(self, status: str) -> Iterator[Step]:
        if not self._item:
            return
        kind, text = self._item["type"], "".join(self._parts)
        if kind == "function_call":
            done = {**self.place, "name": self._item["name"], "arguments": text}
            yield "response.function_call_arguments.done", done
        else:
            place = {**self.place, "content_index": 0}
            if kind == "message":
                yield "response.output_text.done", {**place, "text": text, "logprobs": []}
            else:
                yield "response.reasoning_text.done", {**place, "text": text}
            yield "response.content_part.done", {**place, "part": _part(kind, text)}
        item = {**self._item, "status": status, **_content(kind, text)}
        index = len(self._items)
        self._items.append(item)
        self._item, self._parts = {}, []
        yield "response.output_item.done", {"output_index": index, "item": item}


def _part(kind: str, text: str) -> dict[str, Any]:
    return {**_TEXT, "text": text} if kind == "message" else {"type": "reasoning_text", "text": text}


def _content(kind: str, text: str) -> dict[str, Any]:
    if kind == "function_call":
        return {"arguments": text}
    if kind == "reasoning":
        return {"summary": [], "content": [_part(kind, text)]}
    return {"role": "assistant", "content": [_part(kind, text)]}


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


class ResponsesEncoder:
    """`feed` events, get SSE bytes."""

    def __init__(self, head: ReplyHead) -> None:
        self._response = _ResponseBuilder(head)
        self._number = 0  # of the next event
        self._begin = [("response.created", {"response": self._response.response("in_progress")}),
                       ("response.in_progress", {"response": self._response.response("in_progress")})]  # fmt: skip

    def feed(self, events: Sequence[Event]) -> bytes:
        return b"".join([self._event(step) for step in self._response.feed(events)])

    def texts(self, texts: Sequence[str]) -> bytes:
        if not self._response.is_speaking:
            return self.feed([Text(0, text) for text in texts])
        text = "".join(texts)
        self._response.say(text)
        delta = {**self._response.place, "content_index": 0, "delta": text, "logprobs": []}
        return self._event(("response.output_text.delta", delta))

    def fault(self, message: str, code: str, kind: str) -> bytes:
        return self._event(self._response.fail(message, code))

    def _event(self, step: Step) -> bytes:
        begin, self._begin = self._begin, []
        return b"".join([self._frame(*one) for one in [*begin, step]])

    def _frame(self, name: str, fields: dict[str, Any]) -> bytes:
        data = _json({"type": name, **fields, "sequence_number": self._number})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


class ResponsesCollector:
    """`feed` events, then take the Response."""

    def __init__(self, head: ReplyHead) -> None:
        self._response = _ResponseBuilder(head)

    def texts(self, texts: Sequence[str]) -> None:
        self.feed([Text(0, text) for text in texts])

    def feed(self, events: Sequence[Event]) -> None:
        for _ in self._response.feed(events):
            pass  # a whole reply has no events

    def message(self) -> bytes:
        return _json(self._response.response(self._response.status))


class Responses(OverChat):
    """OpenAI's newer surface."""

    path = "/v1/responses"
    id_prefix = "resp_"
    request = ResponsesRequest
    encoder, collector = ResponsesEncoder, ResponsesCollector

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        """The chat completion that is asked for."""
        asked = read(ResponsesRequest, raw, "input", max_messages)
        asked.refuse_unserved()
        body = asked.chat_body()
        return ParsedRequest(check_chat(body, max_messages), body, asked.dropped, asked.echo())
