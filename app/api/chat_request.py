"""A caller's chat request: the gateway declares and checks only the fields that it reads.

Other fields stay in the body; an engine is sent them only if its dialect lists them. `ignored_fields` names the dropped ones.
"""

from collections.abc import Mapping, Set
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from app.api.media import SOURCES, UNSUPPORTED, AudioFormat, Base64, ImageData
from app.api.reading import (
    MAX_TOOLS,
    ArgumentSchema,
    JSONObjectText,
    Part,
    Probability,
    ResponseFormat,
    Stops,
    Temperature,
    ThinkingBudget,
    TokenLimit,
    ToolName,
    checked,
    present,
)
from app.api.tool_choice import ToolPolicy
from app.api.unserved import UNSERVED, refuse_unserved
from app.errors.tree import BadField
from app.stream.holdback import UNBOUNDED, HoldBack, ThinkPolicy
from app.stream.parser import Parser, Rules
from deploy.engine.dialect import Thinking
from deploy.engine.dialects import COMMON_FIELDS, DIALECTS
from deploy.engine.spec import Medium
from gates.contracts.dialect import Dialect
from gates.contracts.markers import START
from gates.reply.events import Finish
from gates.reply.events import Text as TextEvent

ChoiceCount = Annotated[int, Field(ge=1, le=8)]
"""Choices per prompt."""


class TextPart(Part):
    """Text."""

    type: Literal["text"]
    text: str


class ImageURL(Part):
    """Where an image is: in the request."""

    url: ImageData


class ImagePart(Part):
    """An image, for a vision model."""

    type: Literal["image_url"]
    image_url: ImageURL


class InputAudio(Part):
    """A sound's bytes."""

    data: Base64
    format: AudioFormat


class AudioPart(Part):
    """A sound, for an audio model."""

    type: Literal["input_audio"]
    input_audio: InputAudio


ContentPart = Annotated[TextPart | ImagePart | AudioPart, Field(discriminator="type")]


class CalledFunction(Part):
    """The function of a call in the history."""

    name: str
    arguments: JSONObjectText


class ToolCall(Part):
    """A call in the history. Without one of these fields llama-server answers 500."""

    type: Literal["function"]
    function: CalledFunction
    id: str | None = None


class Message(Part):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[ContentPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_call_id: str | None = None


class Function(Part):
    """The function of a tool: its name and the JSON Schema of its arguments."""

    name: ToolName
    description: str | None = None
    parameters: ArgumentSchema | None = None


class Tool(Part):
    """A declared tool."""

    type: Literal["function"]
    function: Function


class NamedFunction(Part):
    """The name of a declared tool."""

    name: str


class NamedTool(Part):
    """The tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


class TemplateOptions(Part):
    """The switch of thinking, as templates name it."""

    enable_thinking: bool | None = None


class StreamOptions(Part):
    """`include_usage` asks for the usage chunk before `[DONE]`."""

    include_usage: bool = False


class ThinkingSwitch(Part):
    """Anthropic's switch, which some OpenAI clients send as well."""

    type: Literal["enabled", "disabled"]
    budget_tokens: ThinkingBudget | None = None


def _shown(message: Message) -> list[ImagePart | AudioPart]:
    """Its images and sounds. Raises BadField: its role may not have any."""
    said = message.content if isinstance(message.content, list) else ()
    shown = [part for part in said if not isinstance(part, TextPart)]
    if shown and message.role not in ("user", "tool"):
        raise BadField(f"images and sounds come from users and tools, not from {message.role}", UNSUPPORTED)
    return shown


class ChatRequest(Part):
    """`POST /v1/chat/completions`, checked."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: ChoiceCount | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    stop: str | Stops | None = None
    seed: int | None = None
    user: str | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateOptions | None = None
    thinking: ThinkingSwitch | None = None

    # Of the instance, computed once. To pydantic a class variable is no field of the request.
    choice: ClassVar[ToolPolicy]
    """The requirements for tool calls."""
    media: ClassVar[Set[Medium]]
    """Its content other than text."""

    def model_post_init(self, context: Any, /) -> None:
        """Raises BadField for a `tool_choice` or a medium that cannot be served."""
        lists = [message for message in self.messages if type(message.content) is list]
        media = {SOURCES[part.type] for message in lists for part in _shown(message)}
        self.__dict__.update(choice=_choice(self), media=media)

    @property
    def include_usage(self) -> bool:
        """Whether the caller asked for the usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def media_bytes(self) -> tuple[int, int]:
        """The number of its images and sounds, and their bytes as received."""
        shown = [part for message in self.messages for part in _shown(message)]
        datas = [
            part.image_url.url if isinstance(part, ImagePart) else part.input_audio.data for part in shown
        ]
        return len(datas), sum(map(len, datas))

    @property
    def uses_tools(self) -> bool:
        """Whether the reply may hold calls."""
        return self.choice.mode != "none"

    @property
    def most(self) -> int | None:
        """The request's own limit on the tokens of the reply."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def is_begun(self) -> bool:
        """Whether the last turn is the beginning of an answer that the reply must continue."""
        last = self.messages[-1]
        return last.role == "assistant" and not last.tool_calls and bool(last.content)

    def thinking_or(self, default: Thinking) -> Thinking:
        """The requested thinking, by any of three fields; else the model's default.

        It is off for an answer that the caller has begun: vLLM would take it for a thought (#53284).
        """
        if self.is_begun:
            return 0
        asked = self.chat_template_kwargs.enable_thinking if self.chat_template_kwargs else None
        if self.thinking is not None:
            on, budget = self.thinking.type == "enabled", self.thinking.budget_tokens
            if on and budget is not None:
                return budget
        elif asked is not None:
            on = asked
        elif self.reasoning_effort is not None:
            on = self.reasoning_effort != "none"
        else:
            return default
        return (default or None) if on else 0  # on keeps a budget that the model is configured with


def _choice(request: ChatRequest) -> ToolPolicy:
    """The request's policy for tool calls, from `tool_choice` and `parallel_tool_calls`. Raises BadField."""
    declared = [tool.function.name for tool in request.tools or ()]
    asked, single = request.tool_choice, request.parallel_tool_calls is False
    if asked is None:
        return ToolPolicy("auto" if declared else "none", None, single, said=False)
    if not declared and asked not in ("none", "auto"):
        raise BadField("tool_choice needs tools", param="tool_choice")
    if not isinstance(asked, NamedTool):
        return ToolPolicy(asked if declared else "none", None, single)
    if (name := asked.function.name) not in declared:
        raise BadField(
            f"tool_choice: names {name[:128]!r}, which tools does not declare", param="tool_choice"
        )
    return ToolPolicy("required", name, single=True)


_KNOWN: Mapping[Dialect, frozenset[str]] = {
    name: COMMON_FIELDS | ChatRequest.model_fields.keys() | UNSERVED | spec.fields
    for name, spec in DIALECTS.items()
}
"""Fields that the gateway reads or refuses, or an engine of the dialect takes."""
_PLAIN_TURN = frozenset({"role", "content"})
"""The fields of most turns."""


def check_chat(body: dict[str, Any]) -> ChatRequest:
    """The request in this body, with nulls and empty arguments normalized. Raises BadField."""
    request = checked(ChatRequest, body)
    if request.top_logprobs is not None and not request.logprobs:
        raise BadField("top_logprobs needs logprobs: true", param="top_logprobs")
    refuse_unserved(request.extra)
    _normalize(request, body)
    return request


def _normalize(request: ChatRequest, body: dict[str, Any]) -> None:
    """Remove nulls, which llama-server takes for a wrong type, and thoughts from an assistant's old turns.

    Raises BadField for an unserved field of a turn.
    """
    for tool in body.get("tools") or ():
        tool["function"] = present(tool["function"])
    for i, raw in enumerate(body["messages"]):
        if not raw.keys() <= _PLAIN_TURN:
            refuse_unserved(request.messages[i].extra, f"messages.{i}.")
            if made := request.messages[i].tool_calls:
                calls = zip(made, raw["tool_calls"], strict=True)
                raw["tool_calls"] = [_call(call, given) for call, given in calls]
        if raw["role"] == "assistant" and raw.get("content") is not None:
            raw["content"] = without_thoughts(joined(raw["content"]))


def _call(call: ToolCall, given: dict[str, Any]) -> dict[str, Any]:
    return present({**given, "function": {**given["function"], "arguments": call.function.arguments}})


def joined(content: str | list[dict[str, Any]]) -> str:
    """One text: a tag may be split between two parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def without_thoughts(text: str) -> str:
    """The visible part of an assistant's old turn: tags that leaked into a history breed more of them.

    Slow for a long text full of tags, so call it once a request.
    """
    if not any(first in text for first in START):
        return text
    parser = Parser(Rules(finds_calls=False), HoldBack(ThinkPolicy(guard=UNBOUNDED)))
    events = [*parser.feed(TextEvent(0, text)), *parser.feed(Finish(0, "stop"))]
    return "".join(event.text for event in events if isinstance(event, TextEvent))


def ignored_fields(body: dict[str, Any], dialect: Dialect) -> list[str]:
    """Names of the fields that are dropped for an engine of this dialect."""
    if unknown := body.keys() - _KNOWN[dialect]:
        return sorted(name for name in unknown if body[name] is not None)
    return []
