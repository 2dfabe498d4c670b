"""Loads suites: a TOML file, its tools in JSON, and its cases in JSONL, all read strictly. Raises SuiteError.

The TOML file (`_Head`) names JSONL files beside it, every sampling parameter, system prompts, and tools that cases share (a JSON list
of OpenAI tool objects, and named sets of them). A case (`_Line`) has either `user` or `messages`. Ids are unique, and so are texts:
two cases that differ only in capitals, punctuation, system prompt or tools are the same evidence.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from gates.contracts import strict_json
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import SuiteError
from gates.contracts.strict_json import read_objects
from gates.decode.decoder import DecodeError, Text, nearest, read
from gates.decode.files import TomlFiles, read_text
from gates.detect.catalogue import GATES
from gates.detect.detection import normalize
from gates.detect.toolcall import read_arguments
from gates.suite.expect import check_expectation, schema_fault
from gates.suite.own import ALWAYS, OwnSuite, is_own, own_key, own_line, read_own

FILES: Final = TomlFiles("suite", Path(__file__).parents[1] / "suites", SuiteError)
shipped: Final = FILES.shipped

_Id = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,79}\Z")]
_ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]  # as OpenAI allows


@dataclass(frozen=True, slots=True)
class _Head:
    """The TOML file."""

    name: str
    version: int
    description: str
    cases: Annotated[tuple[str, ...], Meta(min_length=1)]
    sampling: Sampling = field(default_factory=Sampling)
    systems: Mapping[str, Text] = field(default_factory=dict)
    tools: Mapping[str, Annotated[tuple[str, ...], Meta(min_length=1)]] = field(default_factory=dict)
    tools_file: str | None = None


_ToolSets = Mapping[str, tuple[Mapping[str, Any], ...]]


def load_suite(name_or_path: str | Path) -> Suite:
    """A shipped suite by name (read once in a process), or any suite by the path of its .toml, .yaml or .jsonl file. Raises SuiteError."""
    path = Path(name_or_path) if is_own(name_or_path) else FILES.path(name_or_path)
    return _read_once(path) if path.parent == FILES.folder else _read(path)


def _read(path: Path) -> Suite:
    if is_own(path):
        own, prompts = read_own(path)
        lines = _cases(
            prompts, lambda i, prompt: _case(own_line(own, prompt, i, path.parent), {}, {}), own_key
        )
        return _suite(own, lines, path)
    head = FILES.read(_Head, read_text(path, SuiteError), str(path))
    systems, tools = {name: text.strip() for name, text in head.systems.items()}, _tool_sets(path, head)
    found = (line for name in head.cases for line in read_objects(path.parent / name, unique_keys=True))
    return _suite(head, _cases(found, lambda _, line: _case(line, systems, tools)), path)


def _suite(head: _Head | OwnSuite, lines: Iterable[Case], path: Path) -> Suite:
    _check_evidence(cases := tuple(lines), str(path))
    digest = digest_of(head.sampling, cases)
    return Suite(head.name or path.stem, head.version, head.description.strip(), head.sampling, cases, digest)


def _cases(
    lines: Iterable[tuple[str, Mapping[str, Any]]],
    make: Callable[[int, Mapping[str, Any]], Case],
    told: Callable[[str], str] = str,
) -> Iterator[Case]:
    """What `make` makes of each line and its number. An error names the line, and says what `told` makes of it."""
    for number, (where, line) in enumerate(lines, 1):
        try:
            yield make(number, line)
        except (DecodeError, SuiteError) as error:
            raise SuiteError(f"{where}: {told(str(error))}") from None


_read_once: Final = lru_cache(maxsize=4)(_read)


def digest_of(sampling: Sampling, cases: Iterable[Case]) -> str:
    """`sha256:` over sampling and cases, in the order of their ids. The order of keys matters inside messages and tools, which chat
    templates print, and not inside `expect`. Names, descriptions and `turn` are labels and left out.
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


def _tool_sets(path: Path, head: _Head) -> _ToolSets:
    tools = _tools(path.parent / head.tools_file) if head.tools_file else {}
    for name, members in head.tools.items():
        for member in members:
            if member not in tools:
                raise SuiteError(f"{path}: tools.{name}: {member!r} is not in {head.tools_file}")
    return {name: tuple(tools[member] for member in members) for name, members in head.tools.items()}


def _tools(path: Path) -> dict[str, Mapping[str, Any]]:
    text = read_text(path, SuiteError)
    try:
        listed = strict_json.loads(text)
        return {tool.function.name: value for tool, value in zip(read(_TOOLS, listed), listed, strict=True)}
    except ValueError as error:
        raise SuiteError(f"{path}: {error}") from None


def _check_evidence(cases: Collection[Case], where: str) -> None:
    if not cases:
        raise SuiteError(f"{where}: has no prompt; a suite that asks nothing passes nothing")
    ids: set[str] = set()
    messages: dict[str, str] = {}
    for case in cases:
        if case.id in ids:
            raise SuiteError(f"{where}: two cases have the id {case.id!r}")
        ids.add(case.id)
        if (other := messages.setdefault(_spoken_text(case), case.id)) != case.id:
            raise SuiteError(
                f"{where}: {other!r} and {case.id!r} say the same; the second is no new evidence"
            )
    if "judge" in (asked := {gate for case in cases for gate in case.gates}) and asked <= {*ALWAYS, "judge"}:
        raise SuiteError(
            f"{where}: judge is its only check; a model's opinion alone decides nothing: add contains, regex, calls or another"
        )


def _spoken_text(case: Case) -> str:
    """All messages of a case except the system prompt, normalized for comparison."""
    turns = [m for m in case.messages if m["role"] != "system"]
    return "\n".join(
        f"{m['role']} {normalize(m['content'])} {_canonical(m.get('tool_calls'))}" for m in turns
    )


# ------------------------------------------------------------------------------------- one case


@dataclass(frozen=True, slots=True)
class _CalledFunction:
    name: _ToolName
    arguments: str

    def __post_init__(self) -> None:
        if isinstance(why := read_arguments(self.arguments), str):
            raise DecodeError("arguments", f"must be an object as a text of JSON ({why})")


@dataclass(frozen=True, slots=True)
class _ToolCall:
    """A tool call in OpenAI's format."""

    id: str
    type: Literal["function"]
    function: _CalledFunction


@dataclass(frozen=True, slots=True)
class _Message:
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[_ToolCall, ...] = ()
    tool_call_id: str | None = None

    def __post_init__(self) -> None:
        if self.tool_calls and self.role != "assistant":
            raise DecodeError("tool_calls", "are for messages of the assistant")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise DecodeError("tool_call_id", "is for messages of a tool, and each needs it")
        if self.role != "tool" and not (self.content.strip() or self.tool_calls):
            raise DecodeError("content", "must be a text that is not empty")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a cases file."""

    id: _Id
    gates: Annotated[tuple[str, ...], Meta(min_length=1)]
    named: tuple[str, ...] = ()
    stage: Literal[1, 2] = 1
    system: str | None = None
    user: Text | None = None
    messages: tuple[_Message, ...] = ()
    tools: Any = ()
    tool_choice: Literal["auto", "none", "required"] | None = None
    expect: Mapping[str, Any] = field(default_factory=dict)
    language: Literal["en", "kn"] = "en"
    turn: str = ""

    def __post_init__(self) -> None:
        for key, names in (("gates", self.gates), ("named", self.named)):
            for name in names:
                _known(key, name, GATES)
            if len(set(names)) != len(names):
                raise DecodeError(key, "must name each gate once")
        if odd := set(self.named) - set(self.gates):
            raise DecodeError("named", f"has {', '.join(sorted(odd))}, which is not in gates")
        if self.named and self.stage == 2:
            raise DecodeError("stage", "must be 1, for the case is a named one")
        if (self.user is None) == (not self.messages):
            raise DecodeError("messages", "a case has either user or messages, and at least one message")
        if self.tool_choice and not self.tools:
            raise DecodeError("tool_choice", "says nothing without tools")


def _case(document: Mapping[str, Any], systems: Mapping[str, str], sets: _ToolSets) -> Case:
    line = read(_Line, document)
    tools = _case_tools(document.get("tools", []), sets)
    needed = {found for gate in line.gates if (found := GATES[gate].expects)}
    check_expectation(line.expect, needed, tools)
    shared = {name: getattr(line, name) for name in _SHARED}
    return Case(messages=_messages(line, document, systems), tools=tools, **shared)


_SHARED: Final = ("id", "gates", "tool_choice", "expect", "named", "stage", "language", "turn")
"""What a case takes from its line as it is."""


def _known(key: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise DecodeError(key, f"there is no {name!r:.80}{nearest(name, known)}")


def _messages(
    line: _Line, document: Mapping[str, Any], systems: Mapping[str, str]
) -> tuple[Mapping[str, Any], ...]:
    """The messages as they stand in the file, after the system prompt that the line names."""
    if line.messages and not _is_whole(line.messages):
        raise DecodeError("messages", _WHOLE)
    messages = tuple(document.get("messages", [{"role": "user", "content": line.user}]))
    if (name := line.system) is None:
        return messages
    _known("system", name, systems)
    if messages[0]["role"] == "system":
        raise DecodeError("system", "names a prompt, but messages begin with one of their own")
    return ({"role": "system", "content": systems[name]}, *messages)


_WHOLE: Final = "must have a system prompt at first or not at all, a result behind each call, a word of the user's, and the user's or a tool's at last"


def _is_whole(messages: Sequence[_Message]) -> bool:
    waiting: set[str] = set()
    for i, message in enumerate(messages):
        if message.role == "tool" and message.tool_call_id in waiting:
            waiting.remove(message.tool_call_id)
        elif waiting or message.role == "tool" or (message.role == "system" and i):
            return False
        else:
            waiting = {call.id for call in message.tool_calls}
    roles = [message.role for message in messages]
    return not waiting and "user" in roles and roles[-1] in ("user", "tool")


# ------------------------------------------------------------------------------------------- tools


def _case_tools(value: Any, sets: _ToolSets) -> tuple[Mapping[str, Any], ...]:
    if isinstance(value, str):
        _known("tools", value, sets)
        return sets[value]
    names = [tool.function.name for tool in read(_TOOLS, value, "tools")]
    if len(set(names)) != len(names):
        raise DecodeError("tools", f"have a name twice: {', '.join(sorted(names))}")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class _Function:
    name: _ToolName
    parameters: Mapping[str, Any]
    description: str = ""
    strict: bool | None = None

    def __post_init__(self) -> None:
        if self.parameters.get("type") != "object":
            raise DecodeError("parameters", "must be the schema of an object")
        if fault := schema_fault(json.dumps(self.parameters)):
            raise DecodeError("parameters", fault)


@dataclass(frozen=True, slots=True)
class ToolObject:
    """An OpenAI tool object, whose parameters are the schema of an object."""

    type: Literal["function"]
    function: _Function


_TOOLS: Final = tuple[ToolObject, ...]
