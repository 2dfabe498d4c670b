"""An OpenAI Responses request, and the chat completion that it asks for. Pure.

This gateway keeps no state between requests: what would need a stored response is refused.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from app.api.chat_request import (
    MAX_TOOLS,
    ArgumentSchema,
    JSONObjectText,
    Probability,
    Temperature,
    TokenLimit,
    ToolName,
    refuse_unserved,
    unsupported,
)
from app.api.media import AudioFormat, Base64, ImageData, audio_part, content, image_part
from app.api.reading import Read, present
from app.api.unserved import RESPONSES

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


class InputText(Read):
    """Text."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Any = None  # of a reply that is handed back; ours have none
    logprobs: Any = None  # of the same


class InputImage(Read):
    """An image, for an engine that sees. A file at OpenAI's is refused."""

    type: Literal["input_image"]
    image_url: ImageData
    detail: str | None = None


class Sound(Read):
    """A sound's bytes."""

    data: Base64
    format: AudioFormat


class InputSound(Read):
    """A sound, for an engine that hears."""

    type: Literal["input_audio"]
    input_audio: Sound


Part = Annotated[InputText | InputImage | InputSound, Field(discriminator="type")]


class _HandedBack(Read):
    """Further fields of an item of an earlier reply. The gateway keeps no items, so it ignores them."""

    id: Any = None
    status: Any = None


class MessageItem(_HandedBack):
    """One turn; its `type` may be left out."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[Part], Field(fail_fast=True)]


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
    output: str | Annotated[list[Part], Field(fail_fast=True)]


class ReasoningPart(Read):
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


class FunctionTool(Read):
    """A tool of the caller's, flat. Tools that OpenAI's servers run are refused."""

    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: ArgumentSchema | None = None
    strict: bool | None = None


class NamedTool(Read):
    """The tool that must be called."""

    type: Literal["function"]
    name: str


class AllowedTools(Read):
    """The tools that may, or must, be called: the model is shown no others."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]


class Reasoning(Read):
    """How much to think."""

    effort: str | None = None


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Raises one error, however many values are no strings: pydantic's own check would collect one for each."""
    if not all(isinstance(value, str) for value in values.values()):
        raise PydanticCustomError("string_type", "every value must be a string")
    return values


Texts = Annotated[dict[str, Any], AfterValidator(_texts), WithJsonSchema(_TEXTS)]
"""Names and texts."""


class Format(Read):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]

    @property
    def dropped(self) -> tuple[str, ...]:
        """Nothing: what is not declared is the schema's."""
        return ()


class Text(Read):
    """How the answer is to be written."""

    format: Format | None = None


class ResponsesRequest(Read):
    """`POST /v1/responses`, checked."""

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
    metadata: Texts | None = None
    user: str | None = None
    truncation: Literal["disabled"] | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None

    def refuse_unserved(self) -> None:
        """Raises BadField for fields that need stored responses, and for others that are not served."""
        inner = {f"text.{name}": value for name, value in self.text.extra.items()} if self.text else {}
        refuse_unserved({**self.extra, **inner}, RESPONSES)
        if "message.output_text.logprobs" in (self.extra.get("include") or ()):
            raise unsupported("include", "message.output_text.logprobs is not served: leave it out")
        for name in ("store", "background", "previous_response_id", "conversation", "prompt"):
            if getattr(self, name):
                message = f"{name} is not served: this gateway keeps nothing; send the whole input each time"
                raise unsupported(name, message)

    def chat_body(self) -> dict[str, Any]:
        """The chat completion with the same meaning."""
        body = {
            "model": self.model,
            "messages": self._messages(),
            "max_tokens": self.max_output_tokens,
            "stream": self.stream,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "user": self.user,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "response_format": self._format(),
            "tools": [_tool(tool) for tool in self.tools] if self.tools else None,
            "tool_choice": _choice(self.tool_choice),
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
        }
        return present(body)

    def echo(self) -> dict[str, Any]:
        """The fields of the request that a response repeats."""
        tools = [tool.model_dump(include={*FunctionTool.model_fields}) for tool in self.tools or ()]
        choice = self.tool_choice
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": self.reasoning.effort if self.reasoning else None, "summary": None},
            "store": False,
            "temperature": self.temperature,
            "text": self.text.model_dump(exclude_none=True) if self.text else {"format": {"type": "text"}},
            "tool_choice": choice.model_dump() if isinstance(choice, Read) else choice or "auto",
            "tools": tools,
            "top_p": self.top_p,
            "truncation": "disabled",
            "user": self.user,
        }

    def _messages(self) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        if self.instructions:
            said.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*said, {"role": "user", "content": self.input}]
        return said + _turns(self.input)

    def _format(self) -> dict[str, Any] | None:
        form = self.text.format if self.text else None
        if form is None or form.type == "text":
            return None
        return {"type": form.type, "json_schema": form.extra} if form.extra else {"type": form.type}


def _turns(items: Iterable[MessageItem | CallItem | OutputItem | ReasoningItem]) -> list[dict[str, Any]]:
    """Items as messages: a thought, a text and calls that follow each other are one assistant's turn."""
    turns: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for item in items:
        if isinstance(item, ReasoningItem):
            thoughts += [part.text for part in item.content or ()]
        elif isinstance(item, OutputItem):
            turns.append({"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)})
        elif isinstance(item, MessageItem):
            turns.append({"role": item.role, "content": _content(item.content)})
        else:
            if not turns or turns[-1]["role"] != "assistant":
                turns.append({"role": "assistant", "content": None})
            turns[-1].setdefault("tool_calls", []).append(_call(item))
        if thoughts and turns and turns[-1]["role"] == "assistant":
            turns[-1]["reasoning_content"], thoughts = "".join(thoughts), []
    return turns


def _content(said: str | list[Part]) -> str | list[dict[str, Any]]:
    return said if isinstance(said, str) else content(map(_part, said), "")


def _part(part: InputText | InputImage | InputSound) -> dict[str, Any]:
    if isinstance(part, InputImage):
        return image_part(part.image_url, **present({"detail": part.detail}))
    if isinstance(part, InputSound):
        return audio_part(part.input_audio.data, part.input_audio.format)
    return {"type": "text", "text": part.text}


def _call(item: CallItem) -> dict[str, Any]:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _tool(tool: FunctionTool) -> dict[str, Any]:
    fields = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": present({**fields, "strict": tool.strict})}


def _choice(choice: str | NamedTool | AllowedTools | None) -> Any:
    """The same in chat's words."""
    if isinstance(choice, NamedTool):
        return {"type": "function", "function": {"name": choice.name}}
    if isinstance(choice, AllowedTools):
        allowed = {"mode": choice.mode, "tools": [_choice(tool) for tool in choice.tools]}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    return choice
