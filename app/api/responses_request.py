"""An OpenAI Responses request, and the chat completion that it asks for. Pure.

This gateway keeps no state between requests: what would need a stored response is refused.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from app.api.chat_request import AudioPart, Function
from app.api.media import ImageData, audio_part, content, image_part
from app.api.reading import (
    MAX_TOOLS,
    JSONObjectText,
    Part,
    Probability,
    Temperature,
    TokenLimit,
    ToolName,
    present,
    refuse_unserved,
)
from app.api.surface import ForeignRequest
from app.api.unserved import RESPONSES, TEXT


class InputText(Part):
    """Text."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Any = None  # of a reply that is handed back; ours have none
    logprobs: Any = None  # of the same


class InputImage(Part):
    """An image, for an engine that sees. A file at OpenAI's is refused."""

    type: Literal["input_image"]
    image_url: ImageData
    detail: str | None = None


InputPart = Annotated[InputText | InputImage | AudioPart, Field(discriminator="type")]
Content = str | Annotated[list[InputPart], Field(fail_fast=True)]


class _HandedBack(Part):
    """Further fields of an item of an earlier reply. The gateway keeps no items, so it ignores them."""

    id: Any = None
    status: Any = None


class MessageItem(_HandedBack):
    """One turn; its `type` may be left out."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class CallItem(_HandedBack):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: ToolName
    arguments: JSONObjectText


class OutputItem(_HandedBack):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: Content


class ReasoningPart(Part):
    """A piece of an old thought."""

    text: str = ""


class ReasoningItem(_HandedBack):
    """An old thought, sent back."""

    type: Literal["reasoning"]
    content: Annotated[list[ReasoningPart], Field(fail_fast=True)] | None = None


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


class NamedTool(Part):
    """The tool that must be called."""

    type: Literal["function"]
    name: str

    def in_chat(self) -> dict[str, Any]:
        """The same in chat's words."""
        return {"type": "function", "function": {"name": self.name}}


class AllowedTools(Part):
    """The tools that may, or must, be called: the model is shown no others."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]

    def in_chat(self) -> dict[str, Any]:
        """The same in chat's words."""
        allowed = {"mode": self.mode, "tools": [tool.in_chat() for tool in self.tools]}
        return {"type": self.type, "allowed_tools": allowed}


class Reasoning(Part):
    """How much to think."""

    effort: str | None = None


class Format(Part):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]

    @property
    def dropped(self) -> tuple[str, ...]:
        """Nothing: what is not declared is the schema's."""
        return ()


class Text(Part):
    """How the answer is to be written."""

    format: Format | None = None


class ResponsesRequest(ForeignRequest):
    """`POST /v1/responses`, checked."""

    turns = "input"
    unserved = RESPONSES
    model: str
    input: str | Annotated[list[Item], Field(min_length=1, fail_fast=True)]
    instructions: str | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | AllowedTools | None = None
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
        if self.text:
            refuse_unserved(self.text.extra, TEXT, "text.")
        if (part := "message.output_text.logprobs") in (self.extra.get("include") or ()):
            refuse_unserved({"include": part}, {"include": f"{part} cannot be kept in filtered text"})

    def chat_body(self) -> dict[str, Any]:
        said = [{"role": "system", "content": self.instructions}] if self.instructions else []
        asked = (
            [{"role": "user", "content": self.input}] if isinstance(self.input, str) else _turns(self.input)
        )
        form, choice = self.text.format if self.text else None, self.tool_choice
        same = ("model", "stream", "temperature", "top_p", "user")
        body = {
            **{name: getattr(self, name) for name in same},
            "messages": said + asked,
            "max_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "tools": [_tool(tool) for tool in self.tools] if self.tools else None,
            "tool_choice": choice.in_chat() if isinstance(choice, NamedTool | AllowedTools) else choice,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
        }
        if form is not None and form.type != "text":
            body["response_format"] = {"type": form.type, **present({"json_schema": form.extra or None})}
        return present(body)

    def echo(self) -> dict[str, Any]:
        choice = self.tool_choice
        same = ("instructions", "max_output_tokens", "temperature", "top_p", "user")
        return {
            **{name: getattr(self, name) for name in same},
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": self.reasoning.effort if self.reasoning else None, "summary": None},
            "store": False,
            "text": self.text.model_dump(exclude_none=True) if self.text else {"format": {"type": "text"}},
            "tool_choice": choice.model_dump() if isinstance(choice, Part) else choice or "auto",
            "tools": [tool.model_dump(include={*FunctionTool.model_fields}) for tool in self.tools or ()],
            "truncation": "disabled",
        }


def _turns(items: Iterable[MessageItem | CallItem | OutputItem | ReasoningItem]) -> list[dict[str, Any]]:
    """Items as messages: a thought, a text and calls that follow each other are one assistant's turn."""
    turns: list[dict[str, Any]] = []
    thought = ""
    for item in items:
        if isinstance(item, ReasoningItem):
            thought += "".join(part.text for part in item.content or ())
        elif isinstance(item, OutputItem):
            turns.append({"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)})
        elif isinstance(item, MessageItem):
            turns.append({"role": item.role, "content": _content(item.content)})
        else:
            if not turns or turns[-1]["role"] != "assistant":
                turns.append({"role": "assistant", "content": None})
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            turns[-1].setdefault("tool_calls", []).append(call)
        if thought and turns and turns[-1]["role"] == "assistant":
            turns[-1]["reasoning_content"], thought = thought, ""
    return turns


def _content(said: Content) -> str | list[dict[str, Any]]:
    return said if isinstance(said, str) else content(map(_part, said), "")


def _part(part: InputText | InputImage | AudioPart) -> dict[str, Any]:
    if isinstance(part, InputImage):
        return image_part(part.image_url, **present({"detail": part.detail}))
    if isinstance(part, AudioPart):
        return audio_part(part.input_audio.data, part.input_audio.format)
    return {"type": "text", "text": part.text}


def _tool(tool: FunctionTool) -> dict[str, Any]:
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": present({name: getattr(tool, name) for name in names})}
