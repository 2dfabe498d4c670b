"""Function calls in the format of BFCL: from its lines to OpenAI's tools and to what a case expects. Pure.

A question is {"id", "question": [[message, …]], "function": [{name, description, parameters}]}, its answer {"id",
"ground_truth": [{name: {parameter: [accepted values]}}]}, where "" among the values means that the parameter may be
absent. Types are Python's ("dict", "float", "tuple", "any"); a dot in a name becomes an underscore, as BFCL itself does
for OpenAI's API. Comparison is that of `gates.suite.expect`, in any order.

Source: gorilla, berkeley-function-call-leaderboard (bfcl-eval 2026.3.23): bfcl_eval/eval_checker/ast_eval/ast_checker.py,
model_handler/utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

TYPES: Final[Mapping[str, str]] = {
    "dict": "object", "hashmap": "object", "float": "number", "double": "number", "long": "integer", "tuple": "array",
    "list": "array", "any": "string", "char": "string", "byte": "integer",
}  # fmt: skip
_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_JSON_TYPES: Final = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))


def tools_of(functions: Any) -> tuple[Mapping[str, Any], ...]:
    """OpenAI's tool objects. Raises ValueError with a reason for what is no list of functions."""
    if not isinstance(functions, list) or not functions:
        raise ValueError("function must be a list of functions")
    return tuple(_tool(function) for function in functions)


def expected_calls(ground_truth: Any, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What `gates.suite.expect.mismatch` compares with. Raises ValueError for calls of functions that are not there."""
    if not isinstance(ground_truth, list) or not ground_truth:
        raise ValueError("ground_truth must be a list of calls")
    known = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    found = []
    for call in ground_truth:
        if not isinstance(call, dict) or len(call) != 1:
            raise ValueError("a call of ground_truth must be an object of one function")
        ((name, arguments),) = call.items()
        if plain_name(name) not in known:
            raise ValueError(f"ground_truth calls {name!r:.60}, which is none of the functions")
        if not isinstance(arguments, dict) or not all(isinstance(v, list) for v in arguments.values()):
            raise ValueError(f"the arguments of {name!r:.60} must be lists of accepted values")
        accepted = {key: [_accepted(value) for value in values] for key, values in arguments.items()}
        found.append({"name": plain_name(name), "arguments": accepted})
    return found


def plain_name(name: str) -> str:
    """A function's name as OpenAI's API allows it."""
    return _NAME.sub("_", name)[:64]


def _tool(function: Any) -> Mapping[str, Any]:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError("a function must be an object with a name")
    parameters = function.get("parameters")
    if not isinstance(parameters, dict):
        raise ValueError(f"{function['name']!r:.60} has no parameters")
    described = {
        "name": plain_name(function["name"]),
        "description": str(function.get("description", "")),
        "parameters": _schema(parameters),
    }
    return {"type": "function", "function": described}


def _schema(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Schema: types in its words, at any depth. What is no schema inside is left out."""
    made: dict[str, Any] = {}
    for key, item in value.items():
        if key == "type" and isinstance(item, str):
            made["type"] = TYPES.get(item.lower(), item.lower())
        elif key == "properties" and isinstance(item, dict):
            made[key] = {name: _schema(part) for name, part in item.items() if isinstance(part, dict)}
        elif key in ("items", "additionalProperties") and isinstance(item, dict):
            made[key] = _schema(item)
        elif key in ("description", "enum", "required"):
            made[key] = item
    if made.get("type", "object") not in _JSON_TYPES:
        made["type"] = "string"
    return made


def _accepted(value: Any) -> Any:
    """An accepted value; inside an object each key has a list of accepted values, one of which must be met."""
    if isinstance(value, dict):
        return {
            key: {"one_of": [_accepted(one) for one in values]} if isinstance(values, list) else values
            for key, values in value.items()
        }
    return [_accepted(one) for one in value] if isinstance(value, list) else value
