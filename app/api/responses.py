"""`POST /v1/responses`, OpenAI's Responses API. Pure.

A response is a list of output items: reasoning (where it is shown), messages and function calls. A stream has a
numbered event for every step; a whole reply is built in the same way, without events.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BeforeValidator, Field

from app.api.chat_request import FlatTool, ImageData, call_of, content_of, function_of
from app.api.items import Collector, Item
from app.api.reading import (
    Declared,
    JSONObjectText,
    Listed,
    Part,
    Some,
    TokenLimit,
    ToolName,
    present,
    refuse_unserved,
)
from app.api.surface import Counts, ForeignRequest, Translated
from gates.reply.events import Event, Finish


class _InputText(Part):
    type: Literal["input_text", "output_text", "text"]
    text: str

    def chat(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


class _InputImage(Part):
    """An image, for an engine that sees. A file at OpenAI's is refused."""

    type: Literal["input_image"]
    image_url: ImageData
    detail: str | None = None

    def chat(self) -> dict[str, Any]:
        return {"type": "image_url", "image_url": present({"url": self.image_url, "detail": self.detail})}


_Content = str | Listed[Annotated[_InputText | _InputImage, Field(discriminator="type")]]


class _MessageItem(Part):
    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: _Content


class _CallItem(Part):
    type: Literal["function_call"]
    call_id: str
    name: ToolName
    arguments: JSONObjectText


class _OutputItem(Part):
    type: Literal["function_call_output"]
    call_id: str
    output: _Content


class _ReasoningItem(Part):
    """An old thought, sent back; it is left out."""

    type: Literal["reasoning"]


def _typed(item: Any) -> Any:
    """A message may leave its type out."""
    return {**item, "type": item.get("type") or "message"} if isinstance(item, dict) else item


_AnyItem = _MessageItem | _CallItem | _OutputItem | _ReasoningItem
_Item = Annotated[_AnyItem, Field(discriminator="type"), BeforeValidator(_typed)]


class _FunctionTool(FlatTool):
    type: Literal["function"]


class _ToolChoice(Part):
    type: Literal["function"]
    name: str


class _Reasoning(Part):
    effort: str | None = None


class _Format(Part):
    """The form of the answer; what is not declared is the schema's."""

    type: Literal["text", "json_object", "json_schema"]


class _Text(Part):
    format: _Format | None = None


class ResponsesRequest(ForeignRequest):
    """`POST /v1/responses`, checked. The gateway keeps no state: what would need a stored response is refused."""

    input: str | Some[_Item]
    instructions: str | None = None
    tools: Declared[_FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: TokenLimit | None = None
    reasoning: _Reasoning | None = None
    text: _Text | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    truncation: Literal["disabled"] | None = None

    def chat(self) -> dict[str, Any]:
        refuse_unserved(self.text.extra if self.text else {}, "text.")
        said = [{"role": "system", "content": self.instructions}] if self.instructions else []
        text = [{"role": "user", "content": self.input}]
        asked = text if isinstance(self.input, str) else _messages(self.input)
        form, choice = self.text.format if self.text else None, self.tool_choice
        schema = form and present({"type": form.type, "json_schema": form.extra or None})
        return {
            "messages": [*said, *asked],
            "max_tokens": self.max_output_tokens,
            "user": self.user,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "tools": [tool.chat() for tool in self.tools] if self.tools else None,
            "tool_choice": function_of(name=choice.name) if isinstance(choice, _ToolChoice) else choice,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "response_format": schema if form and form.type != "text" else None,
        }


def _messages(items: Iterable[Part]) -> list[dict[str, Any]]:
    """Items as chat's messages: a text and calls that follow each other are one assistant's turn."""
    turns: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, _OutputItem):
            content = content_of(item.output, "")
            turns.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
        elif isinstance(item, _MessageItem):
            turns.append({"role": item.role, "content": content_of(item.content, "")})
        elif isinstance(item, _CallItem):
            if not turns or turns[-1]["role"] != "assistant":
                turns.append({"role": "assistant", "content": None})
            call = call_of(item.call_id, item.name, item.arguments)
            turns[-1].setdefault("tool_calls", []).append(call)
    return turns


# The reply.

_INCOMPLETE = {
    "length": "max_output_tokens",
    "repetition": "max_output_tokens",  # vLLM's, of a reply that it cut off
    "content_filter": "content_filter",
}
_KINDS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "text": ("message", "msg", "output_text", {"logprobs": []}),
    "thought": ("reasoning", "rs", "reasoning_text", {}),
    "call": ("function_call", "fc", "function_call_arguments", {}),
}
"""For each kind of item: its type, what begins its id, the name in its text events, and their further fields."""
_json = msgspec.json.encode


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "text":
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"type": "reasoning_text", "text": text}


class ResponsesCollector(Collector):
    """The Response as it grows."""

    def _encode(self, event: Event, out: list[bytes]) -> None:
        if type(event) is Finish and not self.items:
            self._begin("text", out)  # a reply without a word is a message all the same
        super()._encode(event, out)

    def message(self) -> bytes:
        return _json(self.response(self.status))

    @property
    def status(self) -> str:
        """The status of a finished response."""
        return "incomplete" if self.finish and self.finish.reason in _INCOMPLETE else "completed"

    def response(self, status: str) -> dict[str, Any]:
        """The whole response as it is now."""
        reason = _INCOMPLETE.get(self.finish.reason) if self.finish else None
        counts = Counts.of(self._usage)
        usage = {
            "input_tokens": counts.given,
            "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
            "output_tokens": counts.made,
            "output_tokens_details": {"reasoning_tokens": counts.thought},
            "total_tokens": counts.given + counts.made,
        }
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            **self._head.echo,
            "model": self._head.model,
            "output": [self.item(item) for item in self.items if item is not self.open],
            "usage": usage if self._usage and status != "failed" else None,
        }

    def item(self, item: Item, status: str | None = None) -> dict[str, Any]:
        """An item. The last one of a reply that was cut off is incomplete, too."""
        is_last = item.index == len(self.items) - 1
        kind, prefix, _, _ = _KINDS[item.kind]
        unique = self._head.id.partition("_")[2]
        state = status or (self.status if is_last else "completed")
        shown = {"type": kind, "id": f"{prefix}_{unique}{item.index}", "status": state}
        if item.call is not None:
            return {**shown, "call_id": item.call.id, "name": item.call.name, "arguments": item.text}
        of_kind: dict[str, Any] = {"role": "assistant"} if item.kind == "text" else {"summary": []}
        return {**shown, **of_kind, "content": [] if status else [_part(item.kind, item.text)]}


class ResponsesEncoder(ResponsesCollector):
    """A numbered event for each step."""

    _number = 0  # of the next event

    def fault(self, message: str, code: str, kind: str = "upstream_error") -> bytes:
        """The end of a response that broke off: `code` stays in OpenAI's words, `type` is ours."""
        out: list[bytes] = []
        error = {"code": "server_error", "message": message, "type": code}
        self._emit("failed", {"response": {**self.response("failed"), "error": error}}, out)
        return b"".join(out)

    def _on_begin(self, item: Item, out: list[bytes]) -> None:
        shown = self.item(item, "in_progress")
        self._place = {"item_id": shown["id"], "output_index": item.index}  # of the open item's text
        self._emit("output_item.added", {"output_index": item.index, "item": shown}, out)
        if item.call is None:
            self._place["content_index"] = 0
            self._emit("content_part.added", {**self._place, "part": _part(item.kind, "")}, out)

    def _on_text(self, item: Item, text: str, out: list[bytes]) -> None:
        _, _, name, more = _KINDS[item.kind]
        self._emit(f"{name}.delta", {**self._place, "delta": text, **more}, out)

    def _on_end(self, item: Item, out: list[bytes]) -> None:
        text, (_, _, name, more) = item.text, _KINDS[item.kind]
        if item.call is not None:
            self._emit(f"{name}.done", {**self._place, "name": item.call.name, "arguments": text}, out)
        else:
            self._emit(f"{name}.done", {**self._place, "text": text, **more}, out)
            self._emit("content_part.done", {**self._place, "part": _part(item.kind, text)}, out)
        self._emit("output_item.done", {"output_index": item.index, "item": self.item(item)}, out)

    def _on_done(self, out: list[bytes]) -> None:
        self._emit(self.status, {"response": self.response(self.status)}, out)

    def _emit(self, name: str, fields: dict[str, Any], out: list[bytes]) -> None:
        if self._number == 0:
            begun = {"response": ResponsesCollector(self._head).response("in_progress")}
            out += [self._frame("created", begun), self._frame("in_progress", begun)]
        out.append(self._frame(name, fields))

    def _frame(self, name: str, fields: dict[str, Any]) -> bytes:
        data = _json({"type": f"response.{name}", **fields, "sequence_number": self._number})
        self._number += 1
        return b"event: response.%b\ndata: %b\n\n" % (name.encode(), data)


class Responses(Translated):
    path = "/v1/responses"
    id_prefix = "resp_"
    turns = "input"
    echoed = {
        "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True, "temperature": None,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": None, "user": None,
    }  # fmt: skip
    request = ResponsesRequest
    encoder, collector = ResponsesEncoder, ResponsesCollector
