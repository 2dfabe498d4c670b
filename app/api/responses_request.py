"""An OpenAI Responses request, and the chat completion that it asks for. Pure.

This gateway keeps no state between requests: what would need a stored response is refused.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from app.api.chat_request import Function
from app.api.media import ImageData, content, image_part
from app.api.reading import (
    MAX_TOOLS,
    JSONObjectText,
    Part,
    Probability,
    Temperature,
    TokenLimit,
    ToolName,
    present,
)
from app.api.surface import ForeignRequest
from app.api.unserved import refuse_unserved


class InputText(Part):
    """Text."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class InputImage(Part):
    """An image, for an engine that sees. A file at OpenAI's is refused."""

    type: Literal["input_image"]
    image_url: ImageData
    detail: str | None = None


InputPart = Annotated[InputText | InputImage, Field(discriminator="type")]
Content = str | Annotated[list[InputPart], Field(fail_fast=True)]


class MessageItem(Part):
    """One turn; its `type` may be left out."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class CallItem(Part):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: ToolName
    arguments: JSONObjectText


class OutputItem(Part):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content


class ReasoningItem(Part):
    """An old thought, sent back; it is left out."""

    type: Literal["reasoning"]


def _kind(item: Any) -> str:
    return str(item.get("type") or "message") if isinstance(item, dict) else "message"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[OutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_kind),
]


class FunctionTool(Function):
    """A tool of the caller's, flat. Tools that OpenAI's servers run are refused."""

    type: Literal["function"]
    strict: bool | None = None


class ToolChoiceFunction(Part):
    """The tool that must be called."""

    type: Literal["function"]
    name: str


class Reasoning(Part):
    """How much to think."""

    effort: str | None = None


class Format(Part):
    """The form of the answer; what is not declared is the schema's."""

    type: Literal["text", "json_object", "json_schema"]


class Text(Part):
    """How the answer is to be written."""

    format: Format | None = None


class ResponsesRequest(ForeignRequest):
    """`POST /v1/responses`, checked."""

    turns = "input"
    same = {
        "model": "model", "stream": "stream", "temperature": "temperature", "top_p": "top_p", "user": "user",
        "max_output_tokens": "max_tokens",
    }  # fmt: skip
    echoed = {
        "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True, "temperature": None,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": None, "user": None,
    }  # fmt: skip
    model: str
    input: str | Annotated[list[Item], Field(min_length=1, fail_fast=True)]
    instructions: str | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoiceFunction | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: TokenLimit | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    truncation: Literal["disabled"] | None = None

    def refuse_unserved(self) -> None:
        super().refuse_unserved()
        refuse_unserved(self.text.extra if self.text else {}, "text.")

    def others(self) -> dict[str, Any]:
        said = [{"role": "system", "content": self.instructions}] if self.instructions else []
        asked = [MessageItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        form, choice = self.text.format if self.text else None, self.tool_choice
        named = {"type": "function", "function": {"name": getattr(choice, "name", None)}}
        schema = form and present({"type": form.type, "json_schema": form.extra or None})
        return {
            "messages": [*said, *_turns(asked)],
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "tools": [_tool(tool) for tool in self.tools] if self.tools else None,
            "tool_choice": named if isinstance(choice, ToolChoiceFunction) else choice,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "response_format": schema if form and form.type != "text" else None,
        }


def _turns(items: Iterable[Part]) -> list[dict[str, Any]]:
    """Items as messages: a text and calls that follow each other are one assistant's turn."""
    turns: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, OutputItem):
            turns.append({"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)})
        elif isinstance(item, MessageItem):
            turns.append({"role": item.role, "content": _content(item.content)})
        elif isinstance(item, CallItem):
            if not turns or turns[-1]["role"] != "assistant":
                turns.append({"role": "assistant", "content": None})
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            turns[-1].setdefault("tool_calls", []).append(call)
    return turns


def _content(said: Content) -> str | list[dict[str, Any]]:
    return said if isinstance(said, str) else content(map(_part, said), "")


def _part(part: InputText | InputImage) -> dict[str, Any]:
    if isinstance(part, InputText):
        return {"type": "text", "text": part.text}
    return image_part(part.image_url, **present({"detail": part.detail}))


def _tool(tool: FunctionTool) -> dict[str, Any]:
    return {"type": "function", "function": present(tool.model_dump(exclude={"type", *tool.extra}))}
