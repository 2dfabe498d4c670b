"""Reads a caller's JSON into pydantic models, strictly and in the same way for every API. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from app.api import strict_json
from app.api.media import UNSUPPORTED
from app.api.strict_json import Budget
from app.api.tool_schema import SchemaError, SchemaTooLarge, check_format, check_schema
from app.errors.tree import BadField, BadJSON

MAX_TOOLS = 128
"""OpenAI's limit on functions in one request; here also on the calls of one turn."""
MAX_FIELDS = 256
"""Maximum number of fields in a request; all APIs together have some 80."""
MAX_STOPS = 64
"""Maximum number of stop sequences: an engine compares each with every token. OpenAI accepts 4."""
MAX_INT = 2**31 - 1
"""Largest count of tokens; llama-server's is an int of 32 bits."""

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]
TokenLimit = Annotated[int, Field(ge=1, le=MAX_INT)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
Stops = Annotated[list[str], Field(max_length=MAX_STOPS, fail_fast=True)]
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
    """An object in a request: strict for the declared fields; other keys pass, as extra ones."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    @property
    def extra(self) -> dict[str, Any]:
        """Undeclared fields that are not null."""
        return present(self.model_extra or {})


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
    fault = max(error.errors(include_url=False), key=lambda e: len(e["loc"]))
    kind, message = fault["type"], fault["msg"]
    param = _path_in(body, fault["loc"], kind == "missing")
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
