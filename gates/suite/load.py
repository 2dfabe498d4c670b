"""Loads suites: a TOML file, its tools in JSON, and its cases in JSONL, all read strictly.

The TOML file holds `name`, `version`, `description`, `cases` (JSONL files beside it), `[sampling]`
with every parameter, `[systems]` (named system prompts) and, for tools that many cases share,
`tools_file` (a JSON list of OpenAI tool objects) and `[tools]` (named, ordered sets of them).

A case is one line of JSON. `id`, `gates` and either `user` or `messages` are required:

    id           letters, digits and dashes; unique in the suite
    gates        the gates that the case counts for
    named        those of them for which it is a named case; such a case is in stage 1
    stage        1 (default), or 2: asked only if stage 1 did not decide
    system       the name of a system prompt of the TOML file
    user         the user's message; or
    messages     OpenAI messages, the last of them the user's or a tool's
    tools        the name of a tool set of the TOML file, or a list of OpenAI tool objects
    tool_choice  as in OpenAI's API
    expect       what the gates compare with (`gates/suite/expect.py`)
    language     "en" (default), "kn"
    turn         a label for tables

Every fault raises a SuiteError that names file, line and field. Ids are unique, and so are texts: two
cases that differ only in capitals, punctuation, system prompt or tools count as the same evidence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError

from gates.contracts import strict_json
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import SuiteError
from gates.decode.decoder import DecodeError, decode, read, require_between
from gates.decode.jsonl import read_objects
from gates.decode.toml_file import TomlFiles
from gates.suite.expect import REQUIRED_FIELDS, problems
from gates.suite.normalize import normalize

FILES: Final = TomlFiles("suite", Path(__file__).parents[1] / "suites", SuiteError)
shipped: Final = FILES.shipped

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "temperature": (0, 2), "top_p": (0, 1), "top_k": (-1, 10**6), "min_p": (0, 1),
    "repetition_penalty": (0.01, 2), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2),
    "seed": (0, 2**31 - 1), "max_tokens": (1, 10**6),
}  # fmt: skip
LANGUAGES: Final = ("en", "kn")

_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # as OpenAI allows
_CASE_KEYS: Final = frozenset(
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
class _Head:
    """The TOML file."""

    name: str
    version: int
    description: str
    cases: tuple[str, ...]
    sampling: Mapping[str, Any]
    systems: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tools_file: str | None = None

    def __post_init__(self) -> None:
        if not self.cases:
            raise DecodeError("cases", "must name at least one JSONL file beside it")
        for name, system in self.systems.items():
            if not system.strip():
                raise DecodeError(f"systems.{name}", "must be a text that is not empty")
        for name, members in self.tools.items():
            if not members:
                raise DecodeError(f"tools.{name}", "must be a list of tool names")


@dataclass(frozen=True, slots=True)
class SuiteDefinitions:
    """System prompts and tool sets that cases refer to by name."""

    systems: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)


def load_suite(name_or_path: str | Path) -> Suite:
    """A shipped suite by name, or any suite by the path of its .toml file. Raises SuiteError.

    A shipped one is read once in a process: it changes with the code only.
    """
    path = FILES.path(name_or_path)
    return _read_once(path) if path.parent == FILES.folder else _read(path)


def _read(path: Path) -> Suite:
    try:
        head = read(_Head, FILES.table(FILES.text(path), str(path)))
        sampling = _sampling(head.sampling)
    except DecodeError as refused:
        raise SuiteError(f"{path}: {refused}") from None
    cases = _cases(path, head.cases, _definitions(path, head))
    _check_distinct(cases, str(path))
    digest = digest_of(sampling, cases)
    return Suite(head.name, head.version, head.description.strip(), sampling, cases, digest)


_read_once: Final = lru_cache(maxsize=4)(_read)


def digest_of(sampling: Sampling, cases: Iterable[Case]) -> str:
    """`sha256:` and 64 hex digits over sampling and cases, whatever files they were read from.

    Cases are taken in the order of their ids. The order of keys inside messages and tools matters,
    because chat templates print it and grammars follow it; inside `expect` it does not. The suite's name,
    version and description and a case's `turn` are labels and left out.
    """
    parts = [_canonical(asdict(sampling))]
    for case in sorted(cases, key=lambda case: case.id):
        judged = {"gates": sorted(case.gates), "named": sorted(case.named), "stage": case.stage}
        judged |= {"id": case.id, "expect": case.expect, "language": case.language}
        asked = {"messages": case.messages, "tools": case.tools, "tool_choice": case.tool_choice}
        parts += [_canonical(judged), json.dumps(asked, ensure_ascii=True, separators=(",", ":"))]
    return f"sha256:{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()}"


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


# -------------------------------------------------------------------------------------------- head


def _sampling(table: Mapping[str, Any]) -> Sampling:
    """The sampling table. Every parameter is required: a missing one would be left to the engine's default."""
    sampling: Sampling = decode(Sampling, table, "sampling")
    for key, (low, high) in _RANGES.items():
        require_between(f"sampling.{key}", getattr(sampling, key), low, high)
    return sampling


def _definitions(path: Path, head: _Head) -> SuiteDefinitions:
    """The named system prompts and tool sets."""
    tools = _tools(path.parent / head.tools_file) if head.tools_file else {}
    for name, members in head.tools.items():
        for member in members:
            if member not in tools:
                raise SuiteError(f"{path}: tools.{name}: {member!r} is not in {head.tools_file}")
    sets = {name: tuple(tools[member] for member in members) for name, members in head.tools.items()}
    return SuiteDefinitions({name: text.strip() for name, text in head.systems.items()}, sets)


def _tools(path: Path) -> dict[str, Mapping[str, Any]]:
    try:
        listed = strict_json.loads(FILES.text(path))
    except ValueError as error:
        raise SuiteError(f"{path}: not JSON ({error})") from None
    if not isinstance(listed, list):
        raise SuiteError(f"{path}: must be a list of OpenAI tool objects")
    for i, tool in enumerate(listed):
        check_tool(tool, f"{path}: [{i}]")
    return {tool["function"]["name"]: tool for tool in listed}


# ------------------------------------------------------------------------------------------- cases


def _cases(path: Path, files: Iterable[str], definitions: SuiteDefinitions) -> tuple[Case, ...]:
    cases = [case for name in files for case in _file(path.parent / name, definitions)]
    if not cases:
        raise SuiteError(f"{path}: has no case; a suite that asks nothing passes nothing")
    return tuple(cases)


def _file(path: Path, definitions: SuiteDefinitions) -> Iterator[Case]:
    for where, document in read_objects(path, unique_keys=True):
        try:
            yield _case(document, definitions)
        except SuiteError as error:
            raise SuiteError(f"{where}: {error}") from None


def _check_distinct(cases: Iterable[Case], where: str) -> None:
    ids: set[str] = set()
    messages: dict[str, str] = {}
    for case in cases:
        if case.id in ids:
            raise SuiteError(f"{where}: two cases have the id {case.id!r}")
        ids.add(case.id)
        other = messages.setdefault(_spoken_text(case), case.id)
        if other != case.id:
            raise SuiteError(
                f"{where}: {other!r} and {case.id!r} say the same; the second is no new evidence"
            )


def _spoken_text(case: Case) -> str:
    """All messages of a case except the system prompt, normalized for comparison."""
    turns = [m for m in case.messages if m["role"] != "system"]
    return "\n".join(
        f"{m['role']} {normalize(m['content'])} {_canonical(m.get('tool_calls'))}" for m in turns
    )


# ------------------------------------------------------------------------------------- one case


def _case(document: Mapping[str, Any], definitions: SuiteDefinitions) -> Case:
    if odd := document.keys() - _CASE_KEYS:
        raise SuiteError(f"unknown key {', '.join(sorted(odd))}")
    gates, named = _gates(document, "gates"), _gates(document, "named")
    tools, expect = _case_tools(document.get("tools", []), definitions), document.get("expect", {})
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
        messages=_messages(document, definitions),
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
    return tuple(_one_of(gate, key, tuple(REQUIRED_FIELDS)) for gate in value)


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


def _messages(document: Mapping[str, Any], definitions: SuiteDefinitions) -> tuple[Mapping[str, Any], ...]:
    if ("user" in document) == ("messages" in document):
        raise SuiteError("a case has either user or messages")
    messages = document.get("messages", [{"role": "user", "content": document.get("user")}])
    if not isinstance(messages, list) or not messages:
        raise SuiteError("messages must be a list of at least one message")
    open_calls: set[str] = set()
    for i, message in enumerate(messages):
        _check_message(message, f"messages[{i}]", open_calls, first=i == 0)
    if open_calls:
        raise SuiteError(f"messages have no result for the call {', '.join(sorted(open_calls))}")
    if messages[-1]["role"] not in ("user", "tool"):
        raise SuiteError(f"messages[{len(messages) - 1}].role: the last word is the user's or a tool's")
    if all(message["role"] != "user" for message in messages):
        raise SuiteError("messages have no word of a user's")
    if "system" not in document:
        return tuple(messages)
    name = _one_of(document["system"], "system", tuple(definitions.systems))
    if messages[0]["role"] == "system":
        raise SuiteError("system names a prompt, but messages begin with one of their own")
    return ({"role": "system", "content": definitions.systems[name]}, *messages)


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
    """Check a tool call in OpenAI's format, with arguments as JSON text, and return its id."""
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
        sound = isinstance(arguments, str) and isinstance(strict_json.loads(arguments), dict)
    except ValueError:
        sound = False
    if not sound:
        raise SuiteError(f"{where}.function.arguments must be an object as a text of JSON")
    return str(call["id"])


# ------------------------------------------------------------------------------------------- tools


def _case_tools(value: Any, definitions: SuiteDefinitions) -> tuple[Mapping[str, Any], ...]:
    if isinstance(value, str):
        return definitions.tools[_one_of(value, "tools", tuple(definitions.tools))]
    if not isinstance(value, list):
        raise SuiteError("tools must be the name of a tool set, or a list of OpenAI tool objects")
    for i, tool in enumerate(value):
        check_tool(tool, f"tools[{i}]")
    names = [tool["function"]["name"] for tool in value]
    if len(set(names)) != len(names):
        raise SuiteError(f"tools have a name twice: {', '.join(sorted(names))}")
    return tuple(value)


def check_tool(tool: Any, where: str) -> None:
    """Raise SuiteError unless this is an OpenAI tool object whose parameters are the schema of an object."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type") != "function":
        raise SuiteError(f"{where} must be an OpenAI tool object with type and function")
    _matched(function.get("name"), f"{where}.function.name", _TOOL_NAME)
    parameters = function.get("parameters")
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise SuiteError(f"{where}.function.parameters must be the schema of an object")
    if fault := _schema_fault(json.dumps(parameters)):
        raise SuiteError(f"{where}.function.parameters: {fault}")


@lru_cache(maxsize=8192)  # checking takes half a millisecond, and many cases have the same tools
def _schema_fault(text: str) -> str | None:
    """What is wrong with a JSON schema (given as text), or None."""
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
