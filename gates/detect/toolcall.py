"""Checks tool calls: whether they are valid, and whether they are the expected ones. Pure.

Kinds of the Berkeley leaderboard's checker (gorilla, bfcl_eval/eval_checker/ast_eval/ast_checker.py): wrong_func_name,
missing_required, unexpected_param, type_error:simple, type_error:nested, value_error, wrong_count, cannot_find_match, irrelevance (a
call although none may be made), relevance (none although one had to be). Kinds for what that checker repairs before it looks:
unknown_tool, invalid_json, id_missing, id_repeated, finish_reason; and echo (no call was wanted, but the reply says the question again).

An accepted value of an argument is any JSON value (texts without case and punctuation; 5 equals 5.0; true is not 1), or at any depth
{"has": ["priya", "trip|journey"]}, a text in which each of these begins a word, or {"one_of": [2, "two"]}; "" among them: may be absent.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from gates.contracts import strict_json
from gates.contracts.errors import SuiteError
from gates.detect.detection import Detection, detection, excerpt, normalize
from gates.reply.reply import ReplyCall

_KEYWORDS: Final = {
    "required": "missing_required", "dependentRequired": "missing_required", "minProperties": "missing_required",
    "additionalProperties": "unexpected_param", "unevaluatedProperties": "unexpected_param",
    "propertyNames": "unexpected_param", "maxProperties": "unexpected_param",
}  # fmt: skip
"""The leaderboard's kinds for keywords of JSON schemas; others are value errors."""

ABSENT: Final = ""  # in a list of accepted values: the argument may be absent

Call = tuple[str, Mapping[str, Any]]
"""A tool call: its name, and its arguments parsed from JSON."""


def accepts(accepted: Sequence[Any], value: Any) -> bool:
    """Whether an argument's value is one of the accepted ones."""
    return any(_matches(want, value) for want in accepted)


def _matches(want: Any, value: Any) -> bool:
    if isinstance(want, Mapping):
        if want.keys() == {"has"}:
            return isinstance(value, str) and all(
                _begins_a_word(normalize(value), part) for part in want["has"]
            )
        if want.keys() == {"one_of"}:
            return accepts(want["one_of"], value)
        if not isinstance(value, Mapping) or value.keys() - want.keys():
            return False
        return all(
            _matches(of, value[key]) if key in value else _may_be_absent(of) for key, of in want.items()
        )
    if isinstance(want, list):
        return isinstance(value, list) and len(want) == len(value) and all(map(_matches, want, value))
    if isinstance(want, str) and isinstance(value, str):
        return normalize(want) == normalize(value)
    return isinstance(want, bool) == isinstance(value, bool) and bool(want == value)


def _begins_a_word(text: str, part: str) -> bool:
    """Whether one of the alternatives in a part begins a word of a normalized text."""
    return any(f" {normalize(word)}" in f" {text}" for word in part.split("|"))


def _may_be_absent(want: Any) -> bool:
    return isinstance(want, Mapping) and want.keys() == {"one_of"} and ABSENT in want["one_of"]


def mismatch(expected: Sequence[Mapping[str, Any]], made: Sequence[Call]) -> tuple[str, str] | None:
    """The kind and the detail of how calls differ from the expected ones, in any order; None if they match."""
    if len(expected) != len(made):
        names = f"({', '.join(name for name, _ in made)})" if made else ""
        return "wrong_count", f"{len(made)} calls {names}, expected {len(expected)}"
    faults = [[_call_mismatch(want, call) for call in made] for want in expected]
    if _can_pair(faults):
        return None
    unmet = next((i for i, of_one in enumerate(faults) if all(of_one)), 0)
    named = [
        why for why, (name, _) in zip(faults[unmet], made, strict=True) if name == expected[unmet]["name"]
    ]
    return (named or faults[unmet])[0] or ("wrong_count", "one call stands for two of the expected")


def _can_pair(faults: Sequence[Sequence[object]]) -> bool:
    """Whether each expected call has a call of its own: a perfect matching, by augmenting paths."""
    fits = [[made for made, fault in enumerate(of_one) if not fault] for of_one in faults]
    taken: dict[int, int] = {}  # a call to the expected one that it stands for

    def place(want: int, seen: set[int]) -> bool:
        for made in fits[want]:
            if made not in seen:
                seen.add(made)
                if made not in taken or place(taken[made], seen):
                    taken[made] = want
                    return True
        return False

    return all(place(want, set()) for want in range(len(fits)))


def _call_mismatch(want: Mapping[str, Any], call: Call) -> tuple[str, str] | None:
    name, arguments = call
    if name != want["name"]:
        return "wrong_func_name", f"{name}, expected {want['name']}"
    for key, accepted in want["arguments"].items():
        if key not in arguments and ABSENT not in accepted:
            return "missing_required", f"{name} has no {key}"
        if key in arguments and not accepts(accepted, arguments[key]):
            return "value_error", f"{name}.{key} is {arguments[key]!r:.120}"
    odd = sorted(arguments.keys() - want["arguments"].keys())
    return ("unexpected_param", f"{name} has {', '.join(odd)}") if odd else None


def read_arguments(raw: str) -> dict[str, Any] | str:
    """The object in a call's argument text, or why it is not one. A call without arguments must have `{}` (vLLM #11392)."""
    if not raw.strip():
        return "empty; a call without arguments says {}"
    try:
        value = strict_json.loads(raw, unique_keys=True)
        json.dumps(value, ensure_ascii=False).encode()  # raises for half a surrogate pair
    except ValueError as error:
        return str(error)[:80]
    return value if isinstance(value, dict) else f"is a JSON {type(value).__name__}"


def find_wrong_calls(
    calls: Sequence[ReplyCall],
    tools: Sequence[Mapping[str, Any]],
    finish_reason: str | None = None,
    expected: Sequence[Mapping[str, Any]] | None = None,
    text: str = "",
    asked: str = "",
) -> list[Detection]:
    """The checks below; of `text`, the reply, that it does not only repeat what was `asked`: a model that does nothing calls nothing."""
    found = find_call_faults(calls, tools, finish_reason)
    if expected is not None:
        found += find_mismatch(calls, expected)
        if not expected and not calls and _is_echo(normalize(text), normalize(asked)):
            found.append(detection("toolcall", "echo", text, 0, len(text)))
    return found


def _is_echo(said: str, asked: str) -> bool:
    """Whether a text is the question again, or most of it, with little else."""
    is_most = (asked in said and 4 * len(asked) >= 3 * len(said)) or (
        said in asked and 4 * len(said) >= 3 * len(asked)
    )
    return bool(said and asked) and is_most


def find_call_faults(
    calls: Sequence[ReplyCall], tools: Sequence[Mapping[str, Any]], finish_reason: str | None = None
) -> list[Detection]:
    """What is invalid about calls, expected or not: each needs its own id, a tool that was sent, and arguments that its schema
    accepts. `finish_reason` None is not judged. Raises SuiteError for a tool with an unusable schema.
    """
    findings, ids = list[Detection](), set[str]()
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    for i, call in enumerate(calls):
        part, arguments = f"calls[{i}]", read_arguments(call.arguments)
        if not call.id:
            findings.append(_fault("id_missing", f"{call.name} has no id", part))
        elif call.id in ids:
            findings.append(_fault("id_repeated", f"{call.id} is another call's too", part))
        ids.add(call.id or "")
        if isinstance(arguments, str):
            findings.append(_fault("invalid_json", arguments, part))
        if call.name not in schemas:
            known = ", ".join(sorted(schemas))
            findings.append(_fault("unknown_tool", f"{call.name!r} is none of {known}", part))
        elif isinstance(arguments, dict):
            findings += _check_schema(schemas[call.name], arguments, call.name, part)
    if calls and finish_reason not in (None, "tool_calls"):
        findings.append(_fault("finish_reason", f"{finish_reason}, though there are calls"))
    if not calls and finish_reason == "tool_calls":
        findings.append(_fault("finish_reason", "tool_calls, though there is none"))
    return findings


def find_mismatch(calls: Sequence[ReplyCall], expected: Sequence[Mapping[str, Any]]) -> list[Detection]:
    """At most one detection: why the calls are not the expected ones, in any order; [] expects none."""
    if calls and not expected:
        return [_fault("irrelevance", f"{', '.join(call.name for call in calls)}: no call was wanted")]
    if expected and not calls:
        return [_fault("relevance", f"{', '.join(want['name'] for want in expected)} was not called")]
    made = [(call.name, read_arguments(call.arguments)) for call in calls]
    sound = [(name, arguments) for name, arguments in made if isinstance(arguments, dict)]
    if len(sound) < len(made):
        return [_fault("cannot_find_match", "arguments that are no JSON object")]
    why = mismatch(expected, sound)
    return [_fault(*why)] if why else []


def _fault(kind: str, detail: str, part: str = "calls") -> Detection:
    return Detection("toolcall", kind, 0, 0, excerpt(detail), part)


def _check_schema(
    schema: Mapping[str, Any], arguments: Mapping[str, Any], name: str, part: str
) -> Iterator[Detection]:
    """Violations of the schema, and parameters that it does not define, even if it does not forbid them."""
    validator = validator_for(schema, default=Draft202012Validator)
    # With an empty registry a schema cannot make the validator fetch another one from the network.
    try:
        for error in validator(schema, registry=Registry()).iter_errors(arguments):
            place = ".".join(str(step) for step in error.absolute_path)
            yield _fault(_class(error), f"{name}{place and f'.{place}'}: {error.message}", part)
    except Unresolvable as error:
        raise SuiteError(f"tool {name}: its parameters refer to {error.ref}, which is not there") from None
    if "additionalProperties" not in schema and "properties" in schema:
        for key in arguments.keys() - schema["properties"].keys():
            yield _fault("unexpected_param", f"{name} has no parameter {key!r}", part)


def _class(error: ValidationError) -> str:
    """The leaderboard's class for a schema violation; violations of alternatives (anyOf) are value errors."""
    if error.validator == "type":
        return "type_error:nested" if len(error.absolute_path) > 1 else "type_error:simple"
    return _KEYWORDS.get(str(error.validator), "value_error")
