"""`POST /v1/messages`, Anthropic's Messages API. Pure.

A reply is a list of content blocks. The engine counts tokens at the end of its stream, so
`message_start` reports zero and `message_delta` the count.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from app.api.chat_request import Base64, FlatTool, TextPart, ThinkingSwitch, call_of, content_of, function_of
from app.api.items import Collector, Item
from app.api.reading import ArgumentSchema, Declared, Listed, Part, Some, Stops, TokenLimit, ToolName
from app.api.surface import Counts, ForeignRequest, Translated
from app.errors.tree import ANTHROPIC_PATH, anthropic_error
from app.stream.json_value import kind_of


class _Base64Source(Part):
    """An image's bytes. An address, or a file at Anthropic's, is refused: nothing is fetched here."""

    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Base64


class _ImageBlock(Part):
    type: Literal["image"]
    source: _Base64Source

    def chat(self) -> dict[str, Any]:
        url = f"data:{self.source.media_type};base64,{self.source.data}"
        return {"type": "image_url", "image_url": {"url": url}}


class _ToolUseBlock(Part):
    type: Literal["tool_use"]
    id: str
    name: ToolName
    input: dict[str, Any]


_Shown = TextPart | _ImageBlock


class _ToolResultBlock(Part):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Listed[Annotated[_Shown, Field(discriminator="type")]] | None = None
    is_error: bool | None = None

    def chat(self) -> dict[str, Any]:
        """A message of its own."""
        shown = content_of(self.content or "", "\n")
        if self.is_error:
            error = {"type": "text", "text": "Error:"}
            shown = f"Error: {shown}" if isinstance(shown, str) else [error, *shown]
        return {"role": "tool", "tool_call_id": self.tool_use_id, "content": shown}


class _ThinkingBlock(Part):
    """An old thought, sent back; it is left out."""

    type: Literal["thinking", "redacted_thinking"]


_Block = Annotated[_Shown | _ToolUseBlock | _ToolResultBlock | _ThinkingBlock, Field(discriminator="type")]


class _Turn(Part):
    role: Literal["user", "assistant", "system"]
    content: str | Listed[_Block]

    def messages(self) -> Iterator[dict[str, Any]]:
        """Chat's messages: results of tools are messages of their own, before the user's text."""
        blocks = [TextPart(type="text", text=self.content)] if isinstance(self.content, str) else self.content
        calls: list[dict[str, Any]] = []
        shown: list[_Shown] = []
        for block in blocks:
            if isinstance(block, _ToolResultBlock):
                yield block.chat()
            elif isinstance(block, _ToolUseBlock):
                calls.append(call_of(block.id, block.name, _json(block.input).decode()))
            elif not isinstance(block, _ThinkingBlock):
                shown.append(block)
        if calls or shown or self.role == "assistant":
            said = {"role": self.role, "content": content_of(shown, "\n" if self.role == "user" else "")}
            yield {**said, "tool_calls": calls} if calls else said


class _Tool(FlatTool):
    type: Literal["custom"] | None = None
    parameters: Annotated[ArgumentSchema, Field(alias="input_schema")]


class _ToolChoice(Part):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Metadata(Part):
    user_id: str | None = None


class _OutputFormat(Part):
    type: Literal["json_schema"]
    schema_: Annotated[ArgumentSchema, Field(alias="schema")]


class _OutputConfig(Part):
    format: _OutputFormat | None = None


class MessagesRequest(ForeignRequest):
    """`POST /v1/messages`, checked."""

    messages: Some[_Turn]
    max_tokens: TokenLimit
    system: str | Listed[TextPart] | None = None
    tools: Declared[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    stop_sequences: Stops | None = None
    top_k: int | None = None
    thinking: ThinkingSwitch | None = None
    metadata: _Metadata | None = None
    output_config: _OutputConfig | None = None

    def chat(self) -> dict[str, Any]:
        system = content_of(self.system or "", "\n\n")
        turns = [{"role": "system", "content": system}] if system else []
        form = self.output_config.format if self.output_config else None
        schema = form and {"name": "output", "schema": form.schema_, "strict": True}
        choice = self.tool_choice or _ToolChoice(type="auto")
        named = function_of(name=choice.name)
        words: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none", "tool": named}
        return {
            "messages": [*turns, *(message for turn in self.messages for message in turn.messages())],
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "top_k": self.top_k,
            "user": self.metadata.user_id if self.metadata else None,
            "tools": [tool.chat() for tool in self.tools] if self.tools else None,
            "tool_choice": words[choice.type] if self.tool_choice else None,
            "parallel_tool_calls": False if choice.disable_parallel_tool_use and self.tools else None,
            "response_format": {"type": "json_schema", "json_schema": schema} if schema else None,
            "thinking": self.thinking and self.thinking.model_dump(),
        }


# The reply.

_STOP_REASONS = {
    "length": "max_tokens",
    "repetition": "max_tokens",  # vLLM's, of a reply that it cut off
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_DELTAS = {
    "text": ("text_delta", "text"),
    "thought": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
_json = msgspec.json.encode


def _block(item: Item) -> dict[str, Any]:
    text, call = item.text, item.call
    if call is not None:
        # The arguments, unchanged; Anthropic's wrapping for those that are not a JSON object.
        is_object = kind_of(text or "{}") == "object"
        made = msgspec.Raw((text or "{}").encode()) if is_object else {"INVALID_JSON": text}
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": made}
    if item.kind == "thought":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}


class MessagesCollector(Collector):
    def message(self) -> bytes:
        return _json(self.reply())

    def reply(self) -> dict[str, Any]:
        """The Message, as it is now."""
        return {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": [_block(item) for item in self.items],
            **self.stop(),
            "usage": self.counts(),
        }

    def stop(self) -> dict[str, str | None]:
        """Why it ended."""
        finish, reason, word = self.finish, None, None
        if finish is not None and finish.reason == "stop" and finish.stop is not None:
            reason, word = "stop_sequence", finish.stop
        elif finish is not None:
            reason = _STOP_REASONS.get(finish.reason, "end_turn")
        return {"stop_reason": reason, "stop_sequence": word}

    def counts(self) -> dict[str, int]:
        """Anthropic's `input_tokens` leave out those from the cache."""
        counts = Counts.of(self._usage)
        return {
            "input_tokens": counts.given - counts.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": counts.cached,
            "output_tokens": counts.made,
        }


class MessagesEncoder(MessagesCollector):
    """Named events, message_start to message_stop."""

    _is_begun = False

    def fault(self, message: str, code: str, kind: str = "upstream_error") -> bytes:
        error = anthropic_error(message, code, 400 if kind == "invalid_request_error" else 500)
        return b"event: error\ndata: " + _json(error) + b"\n\n"

    def _on_begin(self, item: Item, out: list[bytes]) -> None:
        self._emit("content_block_start", {"index": item.index, "content_block": _block(item)}, out)

    def _on_text(self, item: Item, text: str, out: list[bytes]) -> None:
        kind, name = _DELTAS[item.kind]
        self._emit("content_block_delta", {"index": item.index, "delta": {"type": kind, name: text}}, out)

    def _on_end(self, item: Item, out: list[bytes]) -> None:
        self._emit("content_block_stop", {"index": item.index}, out)

    def _on_done(self, out: list[bytes]) -> None:
        self._emit("message_delta", {"delta": self.stop(), "usage": self.counts()}, out)
        self._emit("message_stop", {}, out)

    def _emit(self, name: str, fields: dict[str, Any], out: list[bytes]) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._emit("message_start", {"message": MessagesCollector(self._head).reply()}, out)
        out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), _json({"type": name, **fields})))


class Messages(Translated):
    path = ANTHROPIC_PATH
    id_prefix = "msg_"
    request = MessagesRequest
    encoder, collector = MessagesEncoder, MessagesCollector
