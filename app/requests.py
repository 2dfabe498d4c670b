"""A caller's chat request: only the fields that the gateway reads are declared and checked.

Everything else is carried in the body and goes to an engine only if its dialect lists it; what
goes nowhere is named by `ignored_fields`, so that nothing is dropped in silence.
"""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.dialects import COMMON_FIELDS, DIALECTS, Thinking
from app.errors import BadField, BadJSON
from deploy.spec import Dialect

MAX_TOOLS = 128
"""OpenAI's limit on functions in one request."""

_FUNCTION_NAME = r"^[a-zA-Z0-9_.:-]{1,128}$"


class _Part(BaseModel):
    """Read strictly where it matters; other keys pass through with the body."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class TextPart(_Part):
    """A text content part. This gateway serves text models: nothing else is taken."""

    type: Literal["text"]
    text: str


class Message(_Part):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class Function(_Part):
    """The function of a tool: its name and the JSON Schema of its arguments."""

    name: Annotated[str, Field(pattern=_FUNCTION_NAME)]
    parameters: dict[str, Any] | None = None


class Tool(_Part):
    """A declared tool."""

    type: Literal["function"]
    function: Function


class StreamOptions(_Part):
    """`include_usage` asks for the usage chunk before `[DONE]`."""

    include_usage: bool = False


class ThinkingSwitch(_Part):
    """Anthropic's switch, which some OpenAI clients send as well.

    `budget_ms` is ours: milliseconds from the request's last byte until the answer must begin.
    """

    type: Literal["enabled", "disabled"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    budget_ms: Annotated[int, Field(ge=1)] | None = None


class ChatRequest(_Part):
    """`POST /v1/chat/completions`, checked."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    logprobs: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking: ThinkingSwitch | None = None

    @property
    def include_usage(self) -> bool:
        """Whether the caller asked for the usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def uses_tools(self) -> bool:
        """Whether the reply may hold calls."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def is_begun(self) -> bool:
        """Whether the last turn is an answer's beginning, which the reply is to go on with."""
        last = self.messages[-1]
        return last.role == "assistant" and not last.tool_calls and bool(last.content)

    def thinking_or(self, default: Thinking) -> Thinking:
        """What the caller asked of thinking, by any of three words; else the model's default.

        An answer that the caller has begun is past its thought: vLLM would take it for one (#53284).
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
        """Milliseconds until the answer must begin; the model's default where nothing is said."""
        asked = None if self.thinking is None else self.thinking.budget_ms
        return default if asked is None else asked


_OURS = frozenset(ChatRequest.model_fields) | {"metadata", "store"}


def parse_chat(raw: bytes, max_messages: int) -> tuple[ChatRequest, dict[str, Any]]:
    """The checked request, and its body as JSON.

    Raises:
        BadJSON: no JSON object. BadField: a field with the wrong type, or one we cannot serve.
    """
    body = json_object(raw)
    return check_chat(body, max_messages), body


def check_chat(body: dict[str, Any], max_messages: int) -> ChatRequest:
    """The request in this body. Raises BadField."""
    try:
        request = ChatRequest.model_validate(body)
    except ValidationError as error:
        raise field_error(error) from None
    _refuse_unserved(request, body, max_messages)
    return request


def ignored_fields(body: dict[str, Any], dialect: Dialect) -> list[str]:
    """Names of the fields that go nowhere when the engine speaks this dialect."""
    known = COMMON_FIELDS | _OURS | DIALECTS[dialect].fields
    return sorted(name for name, value in body.items() if value is not None and name not in known)


def json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in these bytes. Raises BadJSON."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadJSON(f"the request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadJSON("the request body must be a JSON object")
    return body


def field_error(error: ValidationError) -> BadField:
    """The fault that lies deepest: where a value may have several types, it says the most."""
    fault = max(error.errors(include_url=False), key=lambda e: len(e["loc"]))
    param = ".".join(str(p) for p in fault["loc"] if p != "str" and "[" not in str(p))
    if fault["type"] == "missing":
        return BadField(f"{param} is missing", "missing_field", param=param)
    if fault["type"] == "literal_error" and param.endswith(".type") and ".content." in param:
        return BadField(f"{param}: only text parts are served", "unsupported_content", param=param)
    return BadField(f"{param}: {fault['msg']}", param=param)


def _refuse_unserved(request: ChatRequest, body: dict[str, Any], max_messages: int) -> None:
    if request.n is not None and request.n != 1:
        raise _unsupported("n", "this gateway makes one choice a request: leave n out or send 1")
    if request.stream_options is not None and not request.stream:
        raise BadField("stream_options needs stream: true", param="stream_options")
    if request.logprobs or body.get("top_logprobs"):
        raise _unsupported("logprobs", "filtered text has no token log-probabilities; ask the engine itself")
    if body.get("functions") is not None or body.get("function_call") is not None:
        raise _unsupported("functions", "functions are not served: send tools")
    if len(request.messages) > max_messages:
        message = f"at most {max_messages} messages a request; this one has {len(request.messages)}"
        raise BadField(message, "too_many_messages", param="messages")
    if request.tool_choice not in (None, "none", "auto") and not request.tools:
        raise BadField("tool_choice needs tools", param="tool_choice")


def _unsupported(param: str, message: str) -> BadField:
    return BadField(message, "unsupported_parameter", param=param)


def _truth(value: Any) -> bool:
    """`"false"`, `0` and their kin, put right: a template takes them for true (wire.md A.3)."""
    if isinstance(value, str):
        return value.strip().lower() not in ("false", "0", "off", "no", "none", "")
    return bool(value)


def _switched(on: bool, default: Thinking) -> Thinking:
    """On keeps a budget that the model is configured with."""
    return (default or None) if on else 0
