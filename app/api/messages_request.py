"""An Anthropic Messages request, and the chat completion that it asks for. Pure."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from app.api.chat_request import (
    MAX_TOOLS,
    ArgumentSchema,
    Probability,
    ResponseFormat,
    Stops,
    Temperature,
    ThinkingBudget,
    TokenLimit,
    ToolName,
)
from app.api.media import Base64, ImageType, content, image_part
from app.api.reading import Read, present


class TextBlock(Read):
    """Text."""

    type: Literal["text"]
    text: str


class Base64Source(Read):
    """An image's bytes. An address, or a file at Anthropic's, is refused: nothing is fetched here."""

    type: Literal["base64"]
    media_type: ImageType
    data: Base64


class ImageBlock(Read):
    """An image, for an engine that sees."""

    type: Literal["image"]
    source: Base64Source


class ToolUseBlock(Read):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: ToolName
    input: dict[str, Any]


Shown = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]


class ToolResultBlock(Read):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[Shown], Field(fail_fast=True)] | None = None
    is_error: bool | None = None


class ThinkingBlock(Read):
    """An old thought, sent back."""

    type: Literal["thinking"]
    thinking: str
    signature: Any = None  # not checked


class RedactedBlock(Read):
    """An encrypted thought of Anthropic's model; it is dropped."""

    type: Literal["redacted_thinking"]
    data: Any = None


Block = Annotated[
    TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedBlock,
    Field(discriminator="type"),
]


class Turn(Read):
    """One turn of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], Field(fail_fast=True)]


class Tool(Read):
    """A tool of the caller's. Tools that Anthropic's servers run are refused."""

    type: Literal["custom"] | None = None
    name: ToolName
    description: str | None = None
    input_schema: ArgumentSchema
    strict: bool | None = None


class ToolChoice(Read):
    """Whether to call, and what."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Read):
    """The switch; `adaptive` leaves the budget to the model's configuration."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: ThinkingBudget | None = None


class Metadata(Read):
    """`user_id` goes to the engine as `user`."""

    user_id: str | None = None


class OutputFormat(Read):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: Annotated[ResponseFormat, Field(alias="schema")]


class OutputConfig(Read):
    """How the answer is to be written."""

    format: OutputFormat | None = None


class MessagesRequest(Read):
    """`POST /v1/messages`, checked."""

    model: str
    messages: Annotated[list[Turn], Field(min_length=1, fail_fast=True)]
    max_tokens: TokenLimit
    system: str | Annotated[list[TextBlock], Field(fail_fast=True)] | None = None
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

    def chat_body(self) -> dict[str, Any]:
        """The chat completion with the same meaning."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*self._system(), *(m for turn in self.messages for m in _messages(turn))],
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences or None,
            "stream": self.stream,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "thinking": self._thinking(),
            "user": self.metadata.user_id if self.metadata else None,
            "tools": [_tool(tool) for tool in self.tools] if self.tools else None,
            "response_format": self._format(),
        }
        return present({**body, **_choice(self.tool_choice, bool(self.tools))})

    def _system(self) -> Iterator[dict[str, Any]]:
        if self.system:
            yield {"role": "system", "content": _text(self.system, "\n\n")}

    def _format(self) -> dict[str, Any] | None:
        form = self.output_config.format if self.output_config else None
        if form is None:
            return None
        return {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": form.schema_, "strict": True},
        }

    def _thinking(self) -> dict[str, Any] | None:
        if self.thinking is None:
            return None
        if self.thinking.type == "disabled":
            return {"type": "disabled"}
        return present({"type": "enabled", "budget_tokens": self.thinking.budget_tokens})


def _messages(turn: Turn) -> Iterator[dict[str, Any]]:
    """A turn as messages: results of tools are messages of their own, before the user's text."""
    blocks = [TextBlock(type="text", text=turn.content)] if isinstance(turn.content, str) else turn.content
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    shown: list[TextBlock | ImageBlock] = []
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block)}
        elif isinstance(block, ToolUseBlock):
            calls.append(_call(block))
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.thinking)
        elif isinstance(block, TextBlock | ImageBlock):
            shown.append(block)
    if calls or shown or turn.role == "assistant":
        said = {"role": turn.role, "content": _content(shown, "\n" if turn.role == "user" else "")}
        yield {
            **said,
            **present({"tool_calls": calls or None, "reasoning_content": "".join(thoughts) or None}),
        }


def _text(content: str | list[TextBlock], between: str) -> str:
    return content if isinstance(content, str) else between.join(block.text for block in content)


def _content(blocks: Iterable[TextBlock | ImageBlock], between: str) -> str | list[dict[str, Any]]:
    return content(map(_part, blocks), between)


def _part(block: TextBlock | ImageBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return image_part(f"data:{block.source.media_type};base64,{block.source.data}")


def _result(block: ToolResultBlock) -> str | list[dict[str, Any]]:
    said = block.content or ""
    shown = said if isinstance(said, str) else _content(said, "\n")
    if not block.is_error:
        return shown
    return f"Error: {shown}" if isinstance(shown, str) else [{"type": "text", "text": "Error:"}, *shown]


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = msgspec.json.encode(block.input).decode()
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": present({**function, "strict": tool.strict})}


def _choice(choice: ToolChoice | None, has_tools: bool) -> dict[str, Any]:
    if choice is None:
        return {}
    words: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none"}
    named = {"type": "function", "function": {"name": choice.name}}
    fields: dict[str, Any] = {"tool_choice": words.get(choice.type, named)}
    if choice.disable_parallel_tool_use and has_tools:
        fields["parallel_tool_calls"] = False
    return fields
