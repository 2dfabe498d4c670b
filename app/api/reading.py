"""Reads a caller's JSON into pydantic models, strictly and in the same way for every API. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from app.api import strict_json
from app.api.strict_json import Budget
from app.api.tool_schema import TOO_LARGE, check_format, check_schema
from app.errors.tree import BadField, BadJSON

UNSUPPORTED = "unsupported_content"
MAX_TOOLS = 128
"""OpenAI's limit on functions in one request; here also on the calls of one turn."""
MAX_FIELDS = 256
"""Maximum number of fields in a request; all APIs together have some 80."""

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]
TokenLimit = Annotated[int, Field(ge=1, le=2**31 - 1)]  # llama-server's is an int of 32 bits
Stops = Annotated[list[str], Field(max_length=64, fail_fast=True)]
"""Stop sequences: an engine compares each with every token. OpenAI accepts 4."""
Item = TypeVar("Item")
Listed = Annotated[list[Item], Field(fail_fast=True)]
"""A list whose check ends at the first fault: a caller may send a million items."""
Some = Annotated[list[Item], Field(min_length=1, fail_fast=True)]
Declared = Annotated[list[Item], Field(max_length=MAX_TOOLS, fail_fast=True)]


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


JSONObjectText = Annotated[str, AfterValidator(_json_object)]
ArgumentSchema = Annotated[dict[str, Any], AfterValidator(check_schema)]
ResponseFormat = Annotated[dict[str, Any], AfterValidator(check_format)]


class Part(BaseModel):
    """An object in a request: strict for the declared fields; other keys pass, as extra ones."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    @property
    def extra(self) -> dict[str, Any]:
        """Undeclared fields that are not null."""
        return present(self.model_extra or {})


class Request(Part):
    """The fields that all APIs share whose replies are text."""

    model: str
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None


Model = TypeVar("Model", bound=Part)


def checked(kind: type[Model], body: dict[str, Any]) -> Model:
    """The body as a request of this kind. Raises BadField."""
    try:
        return kind.model_validate(body, context=Budget())
    except ValidationError as error:
        raise field_error(error, body) from None


def json_object(raw: bytes, turns: str = "", max_turns: int = 0) -> dict[str, Any]:
    """The JSON object in these bytes, whose list `turns` has at most `max_turns` items. Raises BadJSON, BadField."""
    try:
        body = strict_json.decode(raw)
    except BadJSON as error:
        raise BadJSON(f"the request body cannot be read as JSON: {error.message}", error.code) from None
    if not isinstance(body, dict):
        raise BadJSON("the request body must be a JSON object")
    if len(body) > MAX_FIELDS:
        raise BadField(f"at most {MAX_FIELDS} fields a request; this one has {len(body)}", "too_many_fields")
    if isinstance(listed := body.get(turns), list) and len(listed) > max_turns:
        message = f"at most {max_turns} messages a request; {turns} has {len(listed)}"
        raise BadField(message, "too_many_messages", param=turns)
    return body


def field_error(error: ValidationError, body: Any) -> BadField:
    """The deepest fault, which is the most specific one if a value may have several types."""
    # Of equally deep ones, a wrong value: a tool of another kind lacks what ours have.
    found = error.errors(include_url=False)
    fault = max(found, key=lambda e: (len(e["loc"]), e["type"] != "missing"))
    kind, message = fault["type"], fault["msg"]
    param = _path_in(body, fault["loc"], kind == "missing")
    param += ".type" if kind.startswith("union_tag") else ""
    if kind in ("missing", "union_tag_not_found"):
        return BadField(f"{param} is missing", "missing_field", param=param)
    code = kind if kind in (UNSUPPORTED, TOO_LARGE) else None
    if kind == "union_tag_invalid":
        known, tag = fault["ctx"]["expected_tags"], str(fault["ctx"]["tag"])[:40]
        code, message = UNSUPPORTED, f"{tag!r} is not served here, only {known}"
    elif kind == "literal_error" and param.endswith(".type") and ".content." in param:
        code = UNSUPPORTED
    return BadField(f"{param}: {message}", code, param=param)


def _path_in(body: Any, location: Sequence[str | int], is_missing: bool) -> str:
    """The place of a fault in the body, without the names of the types that pydantic has tried there."""
    path, at = [], body
    for part in location:
        if (isinstance(at, list) and isinstance(part, int)) or (isinstance(at, dict) and part in at):
            path.append(str(part))
            at = at[part]  # type: ignore[index]
    return ".".join([*path, str(location[-1])] if is_missing else path)


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that say nothing."""
    return {name: value for name, value in fields.items() if value is not None}


_NAMES = """
    messages input prompt instructions system tools functions function_call stop stop_sequences n n_predict max_tokens
    max_completion_tokens max_output_tokens response_format output_config output_format logprobs top_logprobs
    store background previous_response_id conversation context_management compaction thread diagnostics container mcp_servers
    max_tool_calls web_search_options modalities audio image suffix verbosity moderation fallbacks inference_geo
    guided_json guided_regex guided_choice guided_grammar structured_outputs grammar json_schema echo prompt_logprobs
    include_stop_str_in_output bad_words allowed_token_ids stop_token_ids logits_processors use_beam_search best_of
    truncate_prompt_tokens chat_template documents prompt_embeds lora
"""
UNSERVED = frozenset(_NAMES.split())
"""Fields that would change a reply, and that this gateway does not take: another API's words; what needs a memory, tools or
replies of another kind; vLLM's and llama-server's forms, tokens and templates. Other fields are ignored and named."""
_SAYS_NOTHING = (["text"], "medium", {"type": "text"})
"""Values that request the default behaviour: text as the only modality or format, and medium verbosity."""


def refuse_unserved(undeclared: Mapping[str, Any], place: str = "") -> None:
    """Raises BadField for an unserved field that asks for something; `place` goes before its name."""
    for name in UNSERVED & undeclared.keys():
        if undeclared[name] and undeclared[name] not in _SAYS_NOTHING:
            message = f"{place}{name} is not served here; leave it out (docs/api.md says what is)"
            raise BadField(message, "unsupported_parameter", param=place + name)
