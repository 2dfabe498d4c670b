"""A caller's chat request: the gateway declares and checks only the fields that it reads.

Other fields stay in the body; an engine is sent them only if its dialect lists them. `ignored_fields` names the dropped ones.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from app.api import strict_json
from app.api.history import joined, without_thoughts
from app.api.media import SOURCES, UNSUPPORTED, AudioFormat, Base64, ImageData
from app.api.strict_json import Budget
from app.api.tool_choice import ToolPolicy, read_choice
from app.api.tool_schema import SchemaError, SchemaTooLarge, check_format, check_schema
from app.api.unserved import CHAT
from app.errors.tree import BadField, BadJSON
from deploy.engine.dialect import Thinking
from deploy.engine.dialects import COMMON_FIELDS, DIALECTS
from deploy.engine.spec import Medium
from gates.contracts.dialect import Dialect

MAX_TOOLS = 128
"""OpenAI's limit on functions in one request; here also on the calls of one turn."""
MAX_FIELDS = 256
"""Maximum number of fields in a request; all APIs together have some 80."""
MAX_STOPS = 64
"""Maximum number of stop sequences: an engine compares each with every token. OpenAI accepts 4."""
MAX_N = 8
"""Maximum number of choices per prompt."""
MAX_INT = 2**31 - 1
"""Largest count of tokens; llama-server's is an int of 32 bits."""

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]
TokenLimit = Annotated[int, Field(ge=1, le=MAX_INT)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
Stops = Annotated[list[str], Field(max_length=MAX_STOPS, fail_fast=True)]
ChoiceCount = Annotated[int, Field(ge=1, le=MAX_N)]
ThinkingBudget = Annotated[int, Field(ge=0)]


def _json_object(text: str, info: ValidationInfo) -> str:
    """Arguments that engines can parse: llama-server answers 500 to others (docs/wire.md).

    An empty text, which some clients send for a call without arguments, becomes an empty object.
    """
    if not text.strip():
        return "{}"
    try:
        if isinstance(strict_json.decode(text.encode(), info.context), dict):
            return text
        why = "this is JSON, but not an object"
    except BadJSON as error:
        why = error.message
    raise PydanticCustomError("json_object", "must be a JSON object as text: {why}", {"why": why})


def _bounded(check: Callable[[Any, Budget], None]) -> AfterValidator:
    """Raises what `check` says of a schema, which is charged to the `Budget` in the validation context."""

    def checked(schema: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        try:
            check(schema, info.context or Budget())
        except SchemaError as error:
            raise PydanticCustomError(error.code, "{why}", {"why": str(error)}) from None
        return schema

    return AfterValidator(checked)


JSONObjectText = Annotated[str, AfterValidator(_json_object)]
"""A JSON object, as text."""
ArgumentSchema = Annotated[dict[str, Any], _bounded(check_schema)]
"""The JSON Schema of a tool's arguments."""
ResponseFormat = Annotated[dict[str, Any], _bounded(check_format)]
"""The format of an answer, with its JSON Schema if it has one."""


class Part(BaseModel):
    """Strict for the declared fields; other keys pass, as extra ones."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


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


class StreamOptions(Part):
    """`include_usage` asks for the usage chunk before `[DONE]`."""

    include_usage: bool = False


class ThinkingSwitch(Part):
    """Anthropic's switch, which some OpenAI clients send as well.

    `budget_ms` is ours: milliseconds from the request's last byte until the answer must begin.
    """

    type: Literal["enabled", "disabled"]
    budget_tokens: ThinkingBudget | None = None
    budget_ms: Annotated[int, Field(ge=1)] | None = None


class ChatRequest(Part):
    """`POST /v1/chat/completions`, checked."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: ChoiceCount | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: str | dict[str, Any] | None = None
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
    chat_template_kwargs: dict[str, Any] | None = None
    thinking: ThinkingSwitch | None = None

    @property
    def include_usage(self) -> bool:
        """Whether the caller asked for the usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    @cached_property
    def choice(self) -> ToolPolicy:
        """The requirements for tool calls. Raises BadField, but not after `check_chat`."""
        declared = [tool.function.name for tool in self.tools] if self.tools else ()
        return read_choice(self.tool_choice, declared, self.parallel_tool_calls)

    @cached_property
    def media(self) -> Set[Medium]:
        """Its content other than text. Raises BadField, but not after `check_chat`."""
        found: set[Medium] = set()
        for message in self.messages:
            if isinstance(message.content, list):
                here = {SOURCES[part.type] for part in message.content if part.type != "text"}
                if here and message.role not in ("user", "tool"):
                    raise BadField(
                        f"images and sounds come from users and tools, not from {message.role}", UNSUPPORTED
                    )
                found |= here
        return found

    @property
    def media_bytes(self) -> tuple[int, int]:
        """The number of its images and sounds, and their bytes as received."""
        sizes = [
            len(part.image_url.url if isinstance(part, ImagePart) else part.input_audio.data)
            for message in self.messages
            if isinstance(message.content, list)
            for part in message.content
            if not isinstance(part, TextPart)
        ]
        return len(sizes), sum(sizes)

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
        if self.thinking is not None:
            on, budget = self.thinking.type == "enabled", self.thinking.budget_tokens
            return budget if on and budget is not None else _switched(on, default)
        asked = (self.chat_template_kwargs or {}).get("enable_thinking")
        if asked is not None:
            return _switched(_truth(asked), default)
        if self.reasoning_effort is not None:
            return _switched(self.reasoning_effort != "none", default)
        return default

    def thinking_ms_or(self, default: int | None) -> int | None:
        """Milliseconds until the answer must begin; the model's default if absent."""
        asked = None if self.thinking is None else self.thinking.budget_ms
        return default if asked is None else asked


_OURS = frozenset(ChatRequest.model_fields) | {"store"}
_KNOWN: Mapping[Dialect, frozenset[str]] = {
    name: COMMON_FIELDS | _OURS | spec.fields for name, spec in DIALECTS.items()
}
"""Fields that the gateway reads or an engine of the dialect takes."""


def parse_chat(raw: bytes, max_messages: int) -> tuple[ChatRequest, dict[str, Any]]:
    """The checked request, and its body as JSON.

    Raises:
        BadJSON: no JSON object. BadField: a field with the wrong type, or one we cannot serve.
    """
    body = json_object(raw)
    return check_chat(body, max_messages), body


def check_chat(body: dict[str, Any], max_messages: int) -> ChatRequest:
    """The request in this body, with nulls and empty arguments normalized. Raises BadField."""
    refuse_too_many(body, "messages", max_messages)
    in_openai_words(body)
    try:
        request = ChatRequest.model_validate(body, context=Budget())
    except ValidationError as error:
        raise field_error(error, body) from None
    _refuse_unserved(request, body)
    _normalize(request, body)
    return request


def in_openai_words(body: dict[str, Any]) -> dict[str, Any]:
    """The body with llama-server's words for a reply's limit in OpenAI's: `n_predict`, and -1 for none. Raises BadField."""
    limit = body.pop("n_predict", None)
    if limit is not None and (type(limit) is not int or (limit < 1 and limit != -1)):
        raise BadField("n_predict: must be at least 1, or -1 for no limit", param="n_predict")
    if body.get("max_completion_tokens") is None and body.get("max_tokens") is None and limit is not None:
        body["max_tokens"] = limit
    if body.get("max_tokens") == -1:
        del body["max_tokens"]
    return body


def refuse_too_many(body: Mapping[str, Any], field: str, most: int) -> None:
    """Raises BadField for a list longer than `most`, before its items are checked."""
    turns = body.get(field)
    if isinstance(turns, list) and len(turns) > most:
        message = f"at most {most} messages a request; {field} has {len(turns)}"
        raise BadField(message, "too_many_messages", param=field)


def _normalize(request: ChatRequest, body: dict[str, Any]) -> None:
    """Remove nulls, which llama-server takes for a wrong type, and thoughts from an assistant's old turns.

    Raises BadField for an unserved field of a turn."""
    for tool in body.get("tools") or ():
        tool["function"] = {key: value for key, value in tool["function"].items() if value is not None}
    for i, raw in enumerate(body["messages"]):
        if not raw.keys() <= _PLAIN_TURN:
            _refuse_turn(raw, i)
            if made := request.messages[i].tool_calls:
                calls = zip(made, raw["tool_calls"], strict=True)
                raw["tool_calls"] = [_call(call, given) for call, given in calls]
        if raw["role"] == "assistant" and raw.get("content") is not None:
            raw["content"] = without_thoughts(joined(raw["content"]))


def _refuse_turn(raw: Mapping[str, Any], index: int) -> None:
    for name, why in _UNSERVED_IN_TURNS.items():
        if raw.get(name) is not None:
            param = f"messages.{index}.{name}"
            raise unsupported(param, f"{param} is not served: {why}")


def _call(call: ToolCall, given: dict[str, Any]) -> dict[str, Any]:
    function = {**given["function"], "arguments": call.function.arguments}
    return {key: value for key, value in {**given, "function": function}.items() if value is not None}


def ignored_fields(body: dict[str, Any], dialect: Dialect) -> list[str]:
    """Names of the fields that are dropped for an engine of this dialect."""
    if unknown := body.keys() - _KNOWN[dialect]:
        return sorted(name for name in unknown if body[name] is not None)
    return []


def json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in these bytes. Raises BadJSON."""
    try:
        body = strict_json.decode(raw)
    except BadJSON as error:
        raise BadJSON(f"the request body cannot be read as JSON: {error.message}", error.code) from None
    if not isinstance(body, dict):
        raise BadJSON("the request body must be a JSON object")
    if len(body) > MAX_FIELDS:
        raise BadField(f"at most {MAX_FIELDS} fields a request; this one has {len(body)}", "too_many_fields")
    return body


def field_error(error: ValidationError, body: Any) -> BadField:
    """The deepest fault, which is the most specific one if a value may have several types."""
    fault = max(error.errors(include_url=False), key=lambda e: len(e["loc"]))
    kind, message = fault["type"], fault["msg"]
    param = path_in(body, fault["loc"], kind == "missing")
    if kind == "missing":
        return BadField(f"{param} is missing", "missing_field", param=param)
    if kind == "union_tag_not_found":
        return BadField(f"{param}.type is missing", "missing_field", param=f"{param}.type")
    code = kind if kind in (UNSUPPORTED, SchemaTooLarge.code) else None
    if kind == "union_tag_invalid":
        known, tag = fault["ctx"]["expected_tags"], str(fault["ctx"]["tag"])[:40]
        code, param, message = UNSUPPORTED, f"{param}.type", f"{tag!r} is not served here, only {known}"
    elif kind == "literal_error" and param.endswith(".type") and ".content." in param:
        code = UNSUPPORTED
    return BadField(f"{param}: {message}", code, param=param)


def path_in(body: Any, location: Sequence[str | int], is_missing: bool = False) -> str:
    """The place of a fault in the body, without the names of the types that pydantic has tried there."""
    path, at = [], body
    for part in location:
        if (isinstance(at, list) and isinstance(part, int)) or (isinstance(at, dict) and part in at):
            path.append(str(part))
            at = at[part]  # type: ignore[index]
    return ".".join([*path, str(location[-1])] if is_missing else path)


_SUPERSEDED: Mapping[str, str] = {"functions": "tools", "function_call": "tool_choice"}
_UNSERVED_IN_TURNS: Mapping[str, str] = {
    "function_call": "send tool_calls",
    "audio": "send what was said as text",
}
"""Fields of an earlier turn: without them the model would not know what it said."""
_PLAIN_TURN = frozenset({"role", "content"})
"""The fields of most turns."""
_SAYS_NOTHING = (["text"], "medium", {"type": "text"})
"""Values that request the default behaviour: text as the only modality or format, and medium verbosity."""


def refuse_unserved(fields: Mapping[str, Any], why_not: Mapping[str, str]) -> None:
    """Raises BadField for a field that would change the reply and is not served; `why_not` has the reason by its name.

    Values that ask for nothing pass: null, false, 0, an empty list, and `_SAYS_NOTHING`.
    """
    if why_not.keys().isdisjoint(fields):
        return
    for name, why in why_not.items():
        value = fields.get(name)
        if value and value not in _SAYS_NOTHING and not (name in ("n", "best_of") and value == 1):
            raise unsupported(name, f"{name} is not served: {why}; leave it out")


def _refuse_unserved(request: ChatRequest, body: dict[str, Any]) -> None:
    if request.stream_options is not None and not request.stream:
        raise BadField("stream_options needs stream: true", param="stream_options")
    if request.top_logprobs is not None and not request.logprobs:
        raise BadField("top_logprobs needs logprobs: true", param="top_logprobs")
    refuse_unserved(body, CHAT)
    if not _SUPERSEDED.keys().isdisjoint(body):
        for name, instead in _SUPERSEDED.items():
            if body.get(name) is not None:
                raise unsupported(name, f"{name} is not served: send {instead}")
    _ = request.choice, request.media  # both raise BadField


def unsupported(param: str, message: str) -> BadField:
    """For a field that this gateway cannot honour."""
    return BadField(message, "unsupported_parameter", param=param)


def _truth(value: Any) -> bool:
    """Normalize `"false"`, `0` and similar values, which a template takes for true (docs/wire.md)."""
    if isinstance(value, str):
        return value.strip().lower() not in ("false", "0", "off", "no", "none", "")
    return bool(value)


def _switched(on: bool, default: Thinking) -> Thinking:
    """On keeps a budget that the model is configured with."""
    return (default or None) if on else 0
