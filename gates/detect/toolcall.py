"""Checks tool calls: whether they are valid, and whether they are the expected ones. Pure.

The kinds are the classes of the Berkeley leaderboard's checker (gorilla, bfcl_eval/eval_checker/ast_eval/ast_checker.py), and
classes for malformed responses, which that checker repairs before it looks.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from gates.contracts.errors import SuiteError
from gates.detect.arguments import InvalidArguments, read_arguments
from gates.detect.detection import Detection, detection, excerpt
from gates.detect.expect import mismatch
from gates.detect.normalize import normalize
from gates.reply.calls import ReplyCall


class CallFault(StrEnum):
    """What can be wrong with tool calls."""

    # Classes of the leaderboard.
    WRONG_NAME = "wrong_func_name"
    MISSING = "missing_required"
    UNEXPECTED = "unexpected_param"
    TYPE = "type_error:simple"
    TYPE_NESTED = "type_error:nested"
    VALUE = "value_error"
    WRONG_COUNT = "wrong_count"
    NO_MATCH = "cannot_find_match"
    NEEDLESS = "irrelevance"  # a call although none may be made
    NOT_CALLED = "relevance"  # no call although one had to be made
    ECHO = "echo"  # no call was wanted, but the reply only says the question again
    # Malformed responses.
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_JSON = "invalid_json"
    NO_ID = "id_missing"
    SAME_ID = "id_repeated"
    FINISH_REASON = "finish_reason"


_KEYWORDS: Final[Mapping[str, CallFault]] = {
    "required": CallFault.MISSING, "dependentRequired": CallFault.MISSING, "minProperties": CallFault.MISSING,
    "additionalProperties": CallFault.UNEXPECTED, "unevaluatedProperties": CallFault.UNEXPECTED,
    "propertyNames": CallFault.UNEXPECTED, "maxProperties": CallFault.UNEXPECTED,
}  # fmt: skip


def find_wrong_calls(
    calls: Sequence[ReplyCall],
    tools: Sequence[Mapping[str, Any]],
    finish_reason: str | None = None,
    expected: Sequence[Mapping[str, Any]] | None = None,
    text: str = "",
    asked: str = "",
) -> list[Detection]:
    """Both of the checks below; the second only if calls are expected, or expected not to be made (then `text`, the reply, must not
    only repeat what was `asked`: a model that does nothing calls nothing).
    """
    found = find_call_faults(calls, tools, finish_reason)
    if expected is not None:
        found += find_mismatch(calls, expected)
        if not expected and not calls and _is_echo(normalize(text), normalize(asked)):
            found.append(detection("toolcall", CallFault.ECHO.value, text, 0, len(text)))
    return found


def _is_echo(said: str, asked: str) -> bool:
    """Whether a text is the question again, or most of it, with little else."""
    if not said or not asked:
        return False
    return (
        said == asked
        or (asked in said and 4 * len(asked) >= 3 * len(said))
        or (said in asked and 4 * len(said) >= 3 * len(asked))
    )


def find_call_faults(
    calls: Sequence[ReplyCall], tools: Sequence[Mapping[str, Any]], finish_reason: str | None = None
) -> list[Detection]:
    """What is invalid about calls, expected or not: each needs its own id, a tool that was sent, and arguments that its schema
    accepts. `finish_reason` None is not judged. Raises SuiteError for a tool with an unusable schema.
    """
    findings = list(_ids(calls))
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    for i, call in enumerate(calls):
        findings += _call(call, f"calls[{i}]", schemas)
    if calls and finish_reason not in (None, "tool_calls"):
        findings.append(_fault(CallFault.FINISH_REASON, f"{finish_reason}, though there are calls"))
    if not calls and finish_reason == "tool_calls":
        findings.append(_fault(CallFault.FINISH_REASON, "tool_calls, though there is none"))
    return findings


def find_mismatch(calls: Sequence[ReplyCall], expected: Sequence[Mapping[str, Any]]) -> list[Detection]:
    """At most one detection: why the calls are not the expected ones, in any order; [] expects none."""
    if calls and not expected:
        return [_fault(CallFault.NEEDLESS, f"{', '.join(call.name for call in calls)}: no call was wanted")]
    if expected and not calls:
        return [
            _fault(CallFault.NOT_CALLED, f"{', '.join(want['name'] for want in expected)} was not called")
        ]
    made = [(call.name, read_arguments(call.arguments)) for call in calls]
    sound = [(name, arguments) for name, arguments in made if isinstance(arguments, dict)]
    if len(sound) < len(made):
        return [_fault(CallFault.NO_MATCH, "arguments that are no JSON object")]
    why = mismatch(expected, sound)
    if why is None:
        return []
    kind, _, detail = why.partition(": ")
    return [_fault(CallFault(kind), detail)]


def _fault(fault: CallFault, detail: str, part: str = "calls") -> Detection:
    return Detection("toolcall", fault.value, 0, 0, excerpt(detail), part)


def _ids(calls: Sequence[ReplyCall]) -> Iterator[Detection]:
    seen: set[str] = set()
    for i, call in enumerate(calls):
        if not call.id:
            yield _fault(CallFault.NO_ID, f"{call.name} has no id", f"calls[{i}]")
        elif call.id in seen:
            yield _fault(CallFault.SAME_ID, f"{call.id} is another call's too", f"calls[{i}]")
        else:
            seen.add(call.id)


def _call(call: ReplyCall, part: str, schemas: Mapping[str, Any]) -> Iterator[Detection]:
    arguments = read_arguments(call.arguments)
    if isinstance(arguments, InvalidArguments):
        yield _fault(CallFault.INVALID_JSON, arguments.detail, part)
    if call.name not in schemas:
        yield _fault(CallFault.UNKNOWN_TOOL, f"{call.name!r} is none of {', '.join(sorted(schemas))}", part)
    elif isinstance(arguments, dict):
        yield from _check_schema(schemas[call.name], arguments, call, part)


def _check_schema(
    schema: Mapping[str, Any], arguments: Mapping[str, Any], call: ReplyCall, part: str
) -> Iterator[Detection]:
    """Violations of the schema, and parameters that it does not define, even if it does not forbid them."""
    validator = validator_for(schema, default=Draft202012Validator)
    # With an empty registry a schema cannot make the validator fetch another one from the network.
    try:
        for error in validator(schema, registry=Registry()).iter_errors(arguments):
            place = ".".join(str(step) for step in error.absolute_path)
            detail = f"{call.name}.{place}: {error.message}" if place else f"{call.name}: {error.message}"
            yield _fault(_class(error), detail, part)
    except Unresolvable as error:
        raise SuiteError(
            f"tool {call.name}: its parameters refer to {error.ref}, which is not there"
        ) from None
    if "additionalProperties" not in schema and "properties" in schema:
        for key in arguments.keys() - schema["properties"].keys():
            yield _fault(CallFault.UNEXPECTED, f"{call.name} has no parameter {key!r}", part)


def _class(error: ValidationError) -> CallFault:
    """The leaderboard's class for a schema violation; violations of alternatives (anyOf) are value errors."""
    if error.validator == "type":
        return CallFault.TYPE_NESTED if len(error.absolute_path) > 1 else CallFault.TYPE
    return _KEYWORDS.get(str(error.validator), CallFault.VALUE)
