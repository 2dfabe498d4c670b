"""One line of a suite's JSONL as a Case: pure, strict, and every fault names line and field.

The keys of a line; only the first two, `gates` and what is said have to be there:

    id           letters, digits and dashes; unique in the suite
    gates        the gates that the case counts for
    named        those of them for which it is one of the seeds' named cases; such a case is in stage 1
    stage        1 (default), or 2: asked only when the first stage did not decide
    system       the name of a system prompt of the head
    user         what is said; or
    messages     OpenAI messages, the last of them the user's or a tool's
    tools        the name of a tool set of the head, or a list of OpenAI tool objects
    tool_choice  as on the wire
    expect       what the gates judge by (`gates/suite/expect.py`)
    language     "en" (default), "kn"
    turn         a label of the kind of prompt, for tables
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError

from gates.contracts.case import Case
from gates.contracts.errors import SuiteError
from gates.suite.expect import NEEDS, problems

LANGUAGES: Final = ("en", "kn")

_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # as OpenAI allows
_KEYS: Final = frozenset(
    ("id", "gates", "named", "stage", "system", "user", "messages", "tools", "tool_choice", "expect",
     "language", "turn")
)  # fmt: skip
_MESSAGE_KEYS: Final = {
    "system": frozenset(("role", "content")),
    "user": frozenset(("role", "content")),
    "assistant": frozenset(("role", "content", "tool_calls")),
    "tool": frozenset(("role", "content", "tool_call_id")),
}


@dataclass(frozen=True, slots=True)
class Shelf:
    """What lines may refer to by name."""

    systems: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)


def case_of(line: str, shelf: Shelf, where: str) -> Case:
    """The case on this line. Raises SuiteError with `where` (file:line) and the field."""
    try:
        document = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{where}: not JSON ({error})") from None
    try:
        return _case(document, shelf)
    except SuiteError as error:
        raise SuiteError(f"{where}: {error}") from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object's members; a key twice would silently lose one of them."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError(f"a key is there twice: {', '.join(key for key, _ in pairs)}")
    return dict(pairs)


def _case(document: Any, shelf: Shelf) -> Case:
    if not isinstance(document, dict):
        raise SuiteError("a case must be an object")
    if odd := document.keys() - _KEYS:
        raise SuiteError(f"unknown key {', '.join(sorted(odd))}")
    gates, named = _gates(document, "gates"), _gates(document, "named")
    tools, expect = _case_tools(document.get("tools", []), shelf), document.get("expect", {})
    if not gates:
        raise SuiteError("gates must name at least one gate; a case that no gate judges is no case")
    if set(named) - set(gates):
        raise SuiteError(f"named has {', '.join(sorted(set(named) - set(gates)))}, which is not in gates")
    if not isinstance(expect, dict):
        raise SuiteError("expect must be an object")
    for name, why in problems(expect, gates, tools):
        raise SuiteError(f"{name} {why}")
    return Case(
        id=_matched(document.get("id"), "id", _ID),
        gates=gates,
        messages=_messages(document, shelf),
        tools=tools,
        tool_choice=_choice(document.get("tool_choice"), tools),
        expect=expect,
        named=named,
        stage=_stage(document.get("stage", 1), named),
        language=_one_of(document.get("language", "en"), "language", LANGUAGES),
        turn=_label(document.get("turn", "")),
    )


def _gates(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list) or len(set(map(str, value))) != len(value):
        raise SuiteError(f"{key} must be a list of gates, each once")
    return tuple(_one_of(gate, key, tuple(NEEDS)) for gate in value)


def _stage(value: Any, named: Sequence[str]) -> int:
    if type(value) is not int or value not in (1, 2):
        raise SuiteError(f"stage must be 1 or 2, not {value!r}")
    if named and value == 2:
        raise SuiteError("stage must be 1, for the case is a named one")
    return value


def _label(value: Any) -> str:
    if not isinstance(value, str):
        raise SuiteError("turn must be a text")
    return value


def _one_of(value: Any, key: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise SuiteError(f"{key} has {value!r}; there are {', '.join(allowed)}")
    return str(value)


def _matched(value: Any, key: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise SuiteError(f"{key} is {value!r:.80}, which does not match {pattern.pattern}")
    return value


# ---------------------------------------------------------------------------------------- messages


def _messages(document: Mapping[str, Any], shelf: Shelf) -> tuple[Mapping[str, Any], ...]:
    if ("user" in document) == ("messages" in document):
        raise SuiteError("a case has either user or messages")
    said = document.get("messages", [{"role": "user", "content": document.get("user")}])
    if not isinstance(said, list) or not said:
        raise SuiteError("messages must be a list of at least one message")
    open_calls: set[str] = set()
    for i, message in enumerate(said):
        _check_message(message, f"messages[{i}]", open_calls, first=i == 0)
    if open_calls:
        raise SuiteError(f"messages have no result for the call {', '.join(sorted(open_calls))}")
    if said[-1]["role"] not in ("user", "tool"):
        raise SuiteError(f"messages[{len(said) - 1}].role: the last word is the user's or a tool's")
    if all(message["role"] != "user" for message in said):
        raise SuiteError("messages have no word of a user's")
    if "system" not in document:
        return tuple(said)
    name = _one_of(document["system"], "system", tuple(shelf.systems))
    if said[0]["role"] == "system":
        raise SuiteError("system names a prompt, but messages begin with one of their own")
    return ({"role": "system", "content": shelf.systems[name]}, *said)


def _check_message(message: Any, where: str, open_calls: set[str], *, first: bool) -> None:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _MESSAGE_KEYS or (role == "system" and not first):
        raise SuiteError(f"{where}.role is {role!r}; it must be user, assistant or tool, or system at first")
    if odd := message.keys() - _MESSAGE_KEYS[role]:
        raise SuiteError(f"{where} has unknown key {', '.join(sorted(odd))}")
    content, calls = message.get("content"), message.get("tool_calls", [])
    if not isinstance(content, str) or not (content.strip() or calls or role == "tool"):
        raise SuiteError(f"{where}.content must be a text that is not empty")
    if open_calls and role != "tool":
        raise SuiteError(f"{where}: the call {', '.join(sorted(open_calls))} has no result yet")
    if role == "tool":
        if message.get("tool_call_id") not in open_calls:
            raise SuiteError(f"{where}.tool_call_id answers no call of the turn before")
        open_calls.remove(message["tool_call_id"])
    for i, call in enumerate(calls):
        open_calls.add(_call_id(call, f"{where}.tool_calls[{i}]"))


def _call_id(call: Any, where: str) -> str:
    """The id of a call in the wire's form: arguments are a text of JSON."""
    function = call.get("function") if isinstance(call, dict) else None
    if (
        not isinstance(function, dict)
        or call.get("type") != "function"
        or not isinstance(call.get("id"), str)
    ):
        raise SuiteError(f"{where} must be an OpenAI tool call with id, type and function")
    _matched(function.get("name"), f"{where}.function.name", _TOOL_NAME)
    arguments = function.get("arguments")
    try:
        sound = isinstance(arguments, str) and isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise SuiteError(f"{where}.function.arguments must be an object as a text of JSON")
    return str(call["id"])


# ------------------------------------------------------------------------------------------- tools


def _case_tools(value: Any, shelf: Shelf) -> tuple[Mapping[str, Any], ...]:
    if isinstance(value, str):
        return shelf.tools[_one_of(value, "tools", tuple(shelf.tools))]
    if not isinstance(value, list):
        raise SuiteError("tools must be the name of a tool set, or a list of OpenAI tool objects")
    for i, tool in enumerate(value):
        check_tool(tool, f"tools[{i}]")
    names = [tool["function"]["name"] for tool in value]
    if len(set(names)) != len(names):
        raise SuiteError(f"tools have a name twice: {', '.join(sorted(names))}")
    return tuple(value)


def check_tool(tool: Any, where: str) -> None:
    """Raise SuiteError unless it is an OpenAI tool object whose parameters are an object's schema."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type") != "function":
        raise SuiteError(f"{where} must be an OpenAI tool object with type and function")
    _matched(function.get("name"), f"{where}.function.name", _TOOL_NAME)
    parameters = function.get("parameters")
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise SuiteError(f"{where}.function.parameters must be the schema of an object")
    if fault := _schema_fault(json.dumps(parameters)):
        raise SuiteError(f"{where}.function.parameters: {fault}")


@lru_cache(maxsize=8192)  # a check is half a millisecond, and many cases send the same tools
def _schema_fault(text: str) -> str | None:
    """What is wrong with a schema, given as JSON."""
    try:
        Draft202012Validator.check_schema(json.loads(text))
    except SchemaError as error:
        return f"{error.message:.120}"
    return None


def _choice(value: Any, tools: Sequence[Mapping[str, Any]]) -> str | None:
    if value is None:
        return None
    if not tools:
        raise SuiteError("tool_choice says nothing without tools")
    return _one_of(value, "tool_choice", ("auto", "none", "required"))
