"""An Anthropic Messages request, and the chat completion that it asks for. Pure."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from app.api.chat_request import TextPart
from app.api.media import Base64, ImageType, content, image_part
from app.api.reading import (
    MAX_TOOLS,
    ArgumentSchema,
    Part,
    Probability,
    Stops,
    Temperature,
    ThinkingBudget,
    TokenLimit,
    ToolName,
    present,
)
from app.api.surface import ForeignRequest


class Base64Source(Part):
    """An image's bytes. An address, or a file at Anthropic's, is refused: nothing is fetched here."""

    type: Literal["base64"]
    media_type: ImageType
    data: Base64


class ImageBlock(Part):
    """An image, for an engine that sees."""

    type: Literal["image"]
    source: Base64Source


class ToolUseBlock(Part):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: ToolName
    input: dict[str, Any]


Shown = Annotated[TextPart | ImageBlock, Field(discriminator="type")]


class ToolResultBlock(Part):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[Shown], Field(fail_fast=True)] | None = None
    is_error: bool | None = None


class ThinkingBlock(Part):
    """An old thought, sent back; it is left out."""

    type: Literal["thinking", "redacted_thinking"]


Block = Annotated[
    TextPart | ImageBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock, Field(discriminator="type")
]


class Turn(Part):
    """One turn of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], Field(fail_fast=True)]


class Tool(Part):
    """A tool of the caller's. Tools that Anthropic's servers run are refused."""

    type: Literal["custom"] | None = None
    name: ToolName
    description: str | None = None
    input_schema: ArgumentSchema
    strict: bool | None = None


class ToolChoice(Part):
    """Whether to call, and what."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Part):
    """The switch; `adaptive` leaves the budget to the model's configuration."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: ThinkingBudget | None = None


class Metadata(Part):
    """`user_id` goes to the engine as `user`."""

    user_id: str | None = None


class OutputFormat(Part):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: Annotated[ArgumentSchema, Field(alias="schema")]


class OutputConfig(Part):
    """How the answer is to be written."""

    format: OutputFormat | None = None


class MessagesRequest(ForeignRequest):
    """`POST /v1/messages`, checked."""

    same = {
        **{name: name for name in ("model", "max_tokens", "stream", "temperature", "top_p", "top_k")},
        "stop_sequences": "stop",
    }
    model: str
    messages: Annotated[list[Turn], Field(min_length=1, fail_fast=True)]
    max_tokens: TokenLimit
    system: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    stop_sequences: Stops | None = None
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_k: int | None = None
    thinking: Thinking | None = None
    metadata: Metadata | None = None
    output_config: OutputConfig | None = None

    def others(self) -> dict[str, Any]:
        said = self.system or []
        system = said if isinstance(said, str) else "\n\n".join(block.text for block in said)
        turns = [{"role": "system", "content": system}] if system else []
        form = self.output_config.format if self.output_config else None
        schema = form and {"name": "output", "schema": form.schema_, "strict": True}
        choice, thinking = self.tool_choice or ToolChoice(type="auto"), self.thinking
        named = {"type": "function", "function": {"name": choice.name}}
        words: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none", "tool": named}
        return {
            "messages": [*turns, *(message for turn in self.messages for message in _messages(turn))],
            "user": self.metadata.user_id if self.metadata else None,
            "tools": [_tool(tool) for tool in self.tools] if self.tools else None,
            "tool_choice": words[choice.type] if self.tool_choice else None,
            "parallel_tool_calls": False if choice.disable_parallel_tool_use and self.tools else None,
            "response_format": {"type": "json_schema", "json_schema": schema} if schema else None,
            "thinking": thinking
            and {
                "type": "disabled" if thinking.type == "disabled" else "enabled",
                "budget_tokens": thinking.budget_tokens,
            },
        }


def _messages(turn: Turn) -> Iterator[dict[str, Any]]:
    """A turn as messages: results of tools are messages of their own, before the user's text."""
    blocks = [TextPart(type="text", text=turn.content)] if isinstance(turn.content, str) else turn.content
    calls: list[dict[str, Any]] = []
    shown: list[TextPart | ImageBlock] = []
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block)}
        elif isinstance(block, ToolUseBlock):
            arguments = msgspec.json.encode(block.input).decode()
            function = {"name": block.name, "arguments": arguments}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif not isinstance(block, ThinkingBlock):
            shown.append(block)
    if calls or shown or turn.role == "assistant":
        said = {"role": turn.role, "content": _content(shown, "\n" if turn.role == "user" else "")}
        yield {**said, "tool_calls": calls} if calls else said


def _content(blocks: Iterable[TextPart | ImageBlock], between: str) -> str | list[dict[str, Any]]:
    return content(map(_part, blocks), between)


def _part(block: TextPart | ImageBlock) -> dict[str, Any]:
    if isinstance(block, TextPart):
        return {"type": "text", "text": block.text}
    return image_part(f"data:{block.source.media_type};base64,{block.source.data}")


def _result(block: ToolResultBlock) -> str | list[dict[str, Any]]:
    said = block.content or ""
    shown = said if isinstance(said, str) else _content(said, "\n")
    if not block.is_error:
        return shown
    return f"Error: {shown}" if isinstance(shown, str) else [{"type": "text", "text": "Error:"}, *shown]


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": present({**function, "strict": tool.strict})}
