"""Tool calls that came as calls: are they sound, and are they the right ones? Pure.

`find_call_faults` needs no expectation: every call has an id of its own, names a tool that was sent,
and its arguments are JSON that the tool's schema accepts (Draft 2020-12, unless the schema names
another). `find_mismatch` compares with what a case expects, in any order (`gates/suite/expect.py`).

The kinds are the error classes of the Berkeley leaderboard's checker (gorilla,
bfcl_eval/eval_checker/ast_eval/ast_checker.py), with its two type errors and value error kept apart,
and those of the wire, which that checker never sees because it repairs before it looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from gates.contracts.errors import SuiteError
from gates.detect.arguments import Unreadable, read_arguments
from gates.detect.finding import Finding, excerpt
from gates.suite.expect import mismatch


class Fault(StrEnum):
    """What can be wrong with calls."""

    # As the leaderboard has them.
    WRONG_NAME = "wrong_func_name"
    MISSING = "missing_required"
    UNEXPECTED = "unexpected_param"
    TYPE = "type_error:simple"
    TYPE_NESTED = "type_error:nested"
    VALUE = "value_error"
    WRONG_COUNT = "wrong_count"
    NO_MATCH = "cannot_find_match"
    NEEDLESS = "irrelevance"  # a call where none may be made
    NOT_CALLED = "relevance"  # none where one had to be made
    # Of the wire.
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_JSON = "invalid_json"
    DUPLICATE_KEY = "duplicate_key"
    NOT_FINITE = "not_finite"
    NOT_AN_OBJECT = "not_an_object"
    NO_ID = "id_missing"
    SAME_ID = "id_repeated"
    FINISH_REASON = "finish_reason"


class CallLike(Protocol):
    """A call as it came: `arguments` is the raw text."""

    @property
    def id(self) -> str | None: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...


# gates.suite.expect's words for a mismatch, and ours.
_MISMATCHES: Final[Mapping[str, Fault]] = {
    "wrong_count": Fault.WRONG_COUNT, "wrong_name": Fault.WRONG_NAME, "missing": Fault.MISSING,
    "unexpected": Fault.UNEXPECTED, "value": Fault.VALUE,
}  # fmt: skip
_KEYWORDS: Final[Mapping[str, Fault]] = {
    "required": Fault.MISSING, "dependentRequired": Fault.MISSING, "minProperties": Fault.MISSING,
    "additionalProperties": Fault.UNEXPECTED, "unevaluatedProperties": Fault.UNEXPECTED,
    "propertyNames": Fault.UNEXPECTED, "maxProperties": Fault.UNEXPECTED,
}  # fmt: skip


def find_call_faults(
    calls: Sequence[CallLike], tools: Sequence[Mapping[str, Any]], finish_reason: str | None = None
) -> list[Finding]:
    """What is unsound about calls, whether or not they are the right ones.

    `tools` are the OpenAI tool objects that were sent. `finish_reason` must be "tool_calls" when
    there are calls; None is not judged (an engine's error has no reason). Raises SuiteError for a
    tool whose schema cannot be used.
    """
    findings = list(_ids(calls))
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    for i, call in enumerate(calls):
        findings += _call(call, f"calls[{i}]", schemas)
    if calls and finish_reason not in (None, "tool_calls"):
        findings.append(_fault(Fault.FINISH_REASON, f"{finish_reason}, though there are calls"))
    if not calls and finish_reason == "tool_calls":
        findings.append(_fault(Fault.FINISH_REASON, "tool_calls, though there is none"))
    return findings


def find_mismatch(calls: Sequence[CallLike], expected: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """At most one finding: why the calls are not the expected ones, in any order; [] expects none.

    Calls whose arguments are no JSON object match nothing.
    """
    if calls and not expected:
        return [_fault(Fault.NEEDLESS, f"{', '.join(call.name for call in calls)}: no call was wanted")]
    if expected and not calls:
        return [_fault(Fault.NOT_CALLED, f"{', '.join(want['name'] for want in expected)} was not called")]
    made = [(call.name, read_arguments(call.arguments)) for call in calls]
    sound = [(name, arguments) for name, arguments in made if isinstance(arguments, dict)]
    if len(sound) < len(made):
        return [_fault(Fault.NO_MATCH, "arguments that are no JSON object")]
    why = mismatch(expected, sound)
    if why is None:
        return []
    kind, _, detail = why.partition(": ")
    return [_fault(_MISMATCHES.get(kind, Fault.NO_MATCH), detail)]


def _fault(fault: Fault, detail: str, part: str = "calls", at: int = 0) -> Finding:
    return Finding("toolcall", fault.value, at, at, excerpt(detail), part)


def _ids(calls: Sequence[CallLike]) -> Iterator[Finding]:
    seen: set[str] = set()
    for i, call in enumerate(calls):
        if not call.id:
            yield _fault(Fault.NO_ID, f"{call.name} has no id", f"calls[{i}]")
        elif call.id in seen:
            yield _fault(Fault.SAME_ID, f"{call.id} is another call's too", f"calls[{i}]")
        else:
            seen.add(call.id)


def _call(call: CallLike, part: str, schemas: Mapping[str, Any]) -> Iterator[Finding]:
    arguments = read_arguments(call.arguments)
    if isinstance(arguments, Unreadable):
        yield _fault(Fault(arguments.kind), arguments.detail, part, arguments.at)
    if call.name not in schemas:
        yield _fault(Fault.UNKNOWN_TOOL, f"{call.name!r} is none of {', '.join(sorted(schemas))}", part)
    elif isinstance(arguments, dict):
        yield from _against(schemas[call.name], arguments, call, part)


def _against(
    schema: Mapping[str, Any], arguments: Mapping[str, Any], call: CallLike, part: str
) -> Iterator[Finding]:
    """What the schema says, and parameters that it does not know though it forbids none."""
    validator = validator_for(schema, default=Draft202012Validator)
    # An empty registry: a tool's schema never makes us fetch another from the network.
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
            yield _fault(Fault.UNEXPECTED, f"{call.name} has no parameter {key!r}", part)


def _class(error: ValidationError) -> Fault:
    """The leaderboard's class for a schema's complaint; alternatives (anyOf) are told as values."""
    if error.validator == "type":
        return Fault.TYPE_NESTED if len(error.absolute_path) > 1 else Fault.TYPE
    return _KEYWORDS.get(str(error.validator), Fault.VALUE)
