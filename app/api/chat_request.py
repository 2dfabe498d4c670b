"""A caller's chat request: the gateway declares and checks only the fields that it reads.

Other fields stay in the body; an engine is sent them only if its dialect lists them. `ignored_fields` names the dropped ones.
Images and sounds come as data: an engine would fetch an address from its own network.
"""

import re
from collections.abc import Iterator, Set
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from app.api.reading import (
    UNSUPPORTED,
    ArgumentSchema,
    Declared,
    JSONObjectText,
    Listed,
    Part,
    Request,
    ResponseFormat,
    Some,
    Stops,
    TokenLimit,
    ToolName,
    checked,
    present,
    refuse_unserved,
)
from app.api.tool_choice import ToolPolicy
from app.errors.tree import BadField
from app.stream.holdback import UNBOUNDED, HoldBack, ThinkPolicy
from app.stream.parser import Parser, Rules
from deploy.engine.dialect import Thinking
from deploy.engine.spec import Medium
from gates.contracts.markers import START
from gates.reply.events import Finish, Text

_BASE64 = re.compile(r"[A-Za-z0-9+/]++={0,2}")  # ++: no second try, which takes a second for 40 MB
_IMAGE = re.compile(r"data:image/[a-z0-9.+-]{1,40};base64,")


def _encoded(data: str) -> str:
    if len(data) % 4 or not _BASE64.fullmatch(data):
        raise PydanticCustomError("base64", "must be base64, and not empty")
    return data


def _image(url: str) -> str:
    head = _IMAGE.match(url)
    if head is None:
        why = "send the image itself, as data:image/…;base64,…: no address is fetched here"
        raise PydanticCustomError(UNSUPPORTED, why)
    _encoded(url[head.end() :])
    return url


Base64 = Annotated[str, AfterValidator(_encoded)]
ImageData = Annotated[str, AfterValidator(_image)]
ChoiceCount = Annotated[int, Field(ge=1, le=8)]
Inner = TypeVar("Inner", bound=Part)


class TextPart(Part):
    type: Literal["text"]
    text: str

    def chat(self) -> dict[str, Any]:
        """The part in chat's words, as other APIs' parts have it too."""
        return {"type": "text", "text": self.text}


class _ImageURL(Part):
    url: ImageData


class ImagePart(Part):
    type: Literal["image_url"]
    image_url: _ImageURL


class _InputAudio(Part):
    data: Base64
    format: Literal["wav", "mp3"]


class AudioPart(Part):
    type: Literal["input_audio"]
    input_audio: _InputAudio


ContentPart = Annotated[TextPart | ImagePart | AudioPart, Field(discriminator="type")]


class OfFunction(Part, Generic[Inner]):
    """A tool, a call of it or the choice of it: OpenAI's API tells what it is in `function`."""

    type: Literal["function"]
    function: Inner


class NamedFunction(Part):
    name: str


class CalledFunction(NamedFunction):
    """The function of a call in the history. Without one of its fields llama-server answers 500."""

    arguments: JSONObjectText


class ToolCall(OfFunction[CalledFunction]):
    id: str | None = None


class Function(Part):
    name: ToolName
    description: str | None = None
    parameters: ArgumentSchema | None = None


class FlatTool(Function):
    """A tool in an API that has no `function` in it. Tools that an API's own servers run are refused."""

    strict: bool | None = None

    def chat(self) -> dict[str, Any]:
        """The tool in chat's words."""
        return function_of(
            name=self.name, description=self.description, parameters=self.parameters, strict=self.strict
        )


class Message(Part):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Listed[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: Declared[ToolCall] | None = None
    tool_call_id: str | None = None

    @property
    def media(self) -> Iterator[tuple[Medium, str]]:
        """Its images and sounds, each with its data."""
        for part in self.content if isinstance(self.content, list) else ():
            if isinstance(part, ImagePart):
                yield "image", part.image_url.url
            elif isinstance(part, AudioPart):
                yield "audio", part.input_audio.data


class TemplateOptions(Part):
    """The switch of thinking, as templates name it."""

    enable_thinking: bool | None = None


class StreamOptions(Part):
    include_usage: bool = False


class ThinkingSwitch(Part):
    """Anthropic's switch, which some OpenAI clients send as well; its `adaptive` leaves the budget to the model's configuration."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None


class ChatRequest(Request):
    """`POST /v1/chat/completions`, checked."""

    messages: Some[Message]
    stream_options: StreamOptions | None = None
    n: ChoiceCount | None = None
    tools: Declared[OfFunction[Function]] | None = None
    tool_choice: Literal["none", "auto", "required"] | OfFunction[NamedFunction] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    stop: str | Stops | None = None
    seed: int | None = None
    user: str | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateOptions | None = None
    thinking: ThinkingSwitch | None = None

    @cached_property
    def choice(self) -> ToolPolicy:
        """The requirements for tool calls. Raises BadField."""
        declared = [tool.function.name for tool in self.tools or ()]
        asked, single = self.tool_choice, self.parallel_tool_calls is False
        if asked is None:
            return ToolPolicy("auto" if declared else "none", None, single, said=False)
        if not declared and asked not in ("none", "auto"):
            raise BadField("tool_choice needs tools", param="tool_choice")
        if isinstance(asked, str):
            return ToolPolicy(asked if declared else "none", None, single)
        if (name := asked.function.name) not in declared:
            why = f"tool_choice: names {name[:128]!r}, which tools does not declare"
            raise BadField(why, param="tool_choice")
        return ToolPolicy("required", name, single=True)

    @cached_property
    def media(self) -> Set[Medium]:
        """Its content other than text."""
        return {medium for message in self.messages for medium, _ in message.media}

    @property
    def media_bytes(self) -> tuple[int, int]:
        """The number of its images and sounds, and their bytes as received."""
        sizes = [len(data) for message in self.messages for _, data in message.media]
        return len(sizes), sum(sizes)

    @property
    def include_usage(self) -> bool:
        """Whether the caller asked for the usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

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
        on = self.chat_template_kwargs.enable_thinking if self.chat_template_kwargs else None
        if self.thinking is not None:
            on = self.thinking.type != "disabled"
            if on and self.thinking.budget_tokens is not None:
                return self.thinking.budget_tokens
        elif on is None and self.reasoning_effort is not None:
            on = self.reasoning_effort != "none"
        if on is None:
            return default
        return (default or None) if on else 0  # on keeps a budget that the model is configured with


_PLAIN_TURN = frozenset({"role", "content"})  # the fields of most turns
_TURN = _PLAIN_TURN | {"name", "tool_calls", "tool_call_id", "reasoning_content"}


def check_chat(body: dict[str, Any]) -> ChatRequest:
    """The request in this body, whose turns and tools are put in words that every engine takes. Raises BadField."""
    request = checked(ChatRequest, body)
    _ = request.choice  # raises what cannot be kept
    if request.top_logprobs is not None and not request.logprobs:
        raise BadField("top_logprobs needs logprobs: true", param="top_logprobs")
    refuse_unserved(request.extra)
    for tool in body.get("tools") or ():
        tool["function"] = present(tool["function"])
    turns = enumerate(zip(request.messages, body["messages"], strict=True))
    body["messages"] = [_turn(message, given, f"messages.{i}.") for i, (message, given) in turns]
    return request


def _turn(message: Message, given: dict[str, Any], place: str) -> dict[str, Any]:
    """A turn of known fields, without nulls, which llama-server takes for a wrong type; an assistant's has no thoughts.

    Raises BadField for a field that is not served.
    """
    role = message.role
    if role in ("user", "system") and type(message.content) is str and given.keys() <= _PLAIN_TURN:
        return given
    if role not in ("user", "tool") and any(message.media):
        raise BadField(f"images and sounds come from users and tools, not from {role}", UNSUPPORTED)
    refuse_unserved(message.extra, place)
    turn = {name: value for name, value in given.items() if name in _TURN and value is not None}
    turn["role"] = "system" if role == "developer" else role  # templates know no developer
    content = turn.setdefault("content", "")
    if role == "assistant":
        # One text: a tag may be split between two parts.
        joined = content if isinstance(content, str) else "".join(part["text"] for part in content)
        turn["content"] = without_thoughts(joined)
    if made := message.tool_calls:
        turn["tool_calls"] = [
            present({**call, "function": {**call["function"], "arguments": read.function.arguments}})
            for read, call in zip(made, given["tool_calls"], strict=True)
        ]
    return turn


def without_thoughts(text: str) -> str:
    """The visible part of an assistant's old turn: tags that leaked into a history breed more of them.

    Slow for a long text full of tags, so call it once a request.
    """
    if not any(first in text for first in START):
        return text
    parser = Parser(Rules(finds_calls=False), HoldBack(ThinkPolicy(guard=UNBOUNDED)))
    events = [*parser.feed(Text(0, text)), *parser.feed(Finish(0, "stop"))]
    return "".join(event.text for event in events if isinstance(event, Text))


def function_of(**fields: Any) -> dict[str, Any]:
    """A tool, or the choice of one, in chat's words."""
    return {"type": "function", "function": present(fields)}


def call_of(identity: str | None, name: str, arguments: str) -> dict[str, Any]:
    """A call in chat's words; `arguments` is JSON."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def content_of(said: str | list[Any], between: str) -> str | list[dict[str, Any]]:
    """The content of a message in chat's words: one text, if all its parts are text. Each part has a method `chat`."""
    if isinstance(said, str):
        return said
    parts: list[dict[str, Any]] = [part.chat() for part in said]
    if any(part["type"] != "text" for part in parts):
        return parts
    return between.join(part["text"] for part in parts)
