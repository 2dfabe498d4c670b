"""A suite in one file, as an author writes it: YAML or JSONL. `gates.suite.load` makes its cases of it.

A prompt is `prompt`, or `turns` (each `user: …` or `assistant: …`), and what its reply must be: `contains`, `regex`, `json_schema`,
`max_sentences`, `language`, `calls` or `no_call`; what a function of the author's says of it (`python: file.py:function`), or a judge
model by a rubric (`judge`). Every reply is also judged for leaked thoughts, raw calls and emptiness. A YAML file is a list of prompts,
or a table with `prompts` and what they share; a JSONL file has a prompt in each line.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from gates.contracts.case import Sampling
from gates.contracts.errors import SuiteError
from gates.contracts.strict_json import read_objects
from gates.decode.decoder import DecodeError, Text, nearest, read
from gates.decode.files import read_text

_SUFFIXES: Final = (".yaml", ".yml", ".jsonl")
ALWAYS: Final = ("leak", "raw_call", "empty")
"""The gates of every prompt."""
_GATES: Final = {"tools": "calls", "checks": "checks", "judge": "judge"}
"""The other gates, and the expectation that asks for each."""
_CHECKS: Final = ("contains", "regex", "json_schema", "max_sentences", "language", "python")
MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class OwnSuite:
    """The file's table. `tools` and `system` are for prompts that have none of their own."""

    version: ClassVar = 1
    prompts: tuple[Mapping[str, Any], ...]
    name: str = ""
    description: str = ""
    system: Text | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    judge: Mapping[str, Any] = field(default_factory=dict)  # of `gates.suite.expect.ExpectedJudge`


@dataclass(frozen=True, slots=True)
class _Prompt:
    prompt: Text | None = None
    turns: tuple[Mapping[str, Text], ...] = ()
    id: str = ""
    system: Text | None = None
    tools: tuple[Mapping[str, Any], ...] | None = None
    calls: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None = None
    no_call: bool = False
    contains: str | tuple[str, ...] | None = None  # msgspec 0.22 crashes at a pattern in a union
    regex: Text | None = None
    json_schema: Mapping[str, Any] | None = None
    max_sentences: Annotated[int, Meta(ge=1)] | None = None
    language: Text | None = None
    python: Text | None = None
    judge: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.prompt is None) == (not self.turns):
            raise DecodeError("", "must have a prompt, or turns, and not both")
        if any(turn.keys() not in ({"user"}, {"assistant"}) for turn in self.turns):
            raise DecodeError("turns", "must each be `user: …` or `assistant: …`")
        if self.calls is not None and self.no_call:
            raise DecodeError("no_call", "contradicts calls")


def is_own(name_or_path: str | Path) -> bool:
    """Whether this is the path of a suite in one file."""
    return Path(name_or_path).suffix in _SUFFIXES


def read_own(path: Path) -> tuple[OwnSuite, list[tuple[str, Mapping[str, Any]]]]:
    """The file, and the place and the table of each prompt. Raises SuiteError."""
    if path.suffix == ".jsonl":
        found = list[tuple[str, Mapping[str, Any]]](read_objects(path, unique_keys=True))
        return OwnSuite(tuple(prompt for _, prompt in found)), found
    suite = _yaml(path)
    return suite, [(f"{path}: prompts[{i}]", prompt) for i, prompt in enumerate(suite.prompts)]


def own_key(told: str) -> str:
    """An error of a line, with the key of the prompt that the line was made of."""
    return re.sub(r"\Aexpect\.(?:checks\.)?", "", re.sub(r"\Amessages", "turns", told))


def own_line(suite: OwnSuite, table: Mapping[str, Any], number: int, folder: Path) -> dict[str, Any]:
    """A prompt as a line of `gates.suite.load`. Raises DecodeError."""
    prompt = read(_Prompt, table)
    expect: dict[str, Any] = {}
    if prompt.no_call:
        expect["calls"] = []
    elif prompt.calls is not None:
        calls = [prompt.calls] if isinstance(prompt.calls, Mapping) else prompt.calls
        expect["calls"] = [_call(call) for call in calls]
    checks = {name: getattr(prompt, name) for name in _CHECKS}
    checks["contains"] = (
        [prompt.contains] if isinstance(prompt.contains, str) else prompt.contains and list(prompt.contains)
    )
    checks["python"] = prompt.python and _function(prompt.python, folder)
    if checks := {name: value for name, value in checks.items() if value is not None}:
        expect["checks"] = checks
    if prompt.judge is not None:
        own = {"rubric": prompt.judge} if isinstance(prompt.judge, str) else prompt.judge
        expect["judge"] = {**suite.judge, **own}
    system = prompt.system or suite.system
    return {
        "id": prompt.id or f"prompt-{number:03d}",
        "gates": [*ALWAYS, *(gate for gate, key in _GATES.items() if key in expect)],
        "messages": [*([{"role": "system", "content": system}] if system else []), *_turns(prompt)],
        "tools": [_tool(tool) for tool in (suite.tools if prompt.tools is None else prompt.tools)],
        "expect": expect,
    }


def _turns(prompt: _Prompt) -> Iterator[dict[str, str]]:
    for turn in prompt.turns or ({"user": prompt.prompt or ""},):
        yield from ({"role": role, "content": content} for role, content in turn.items())


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool as OpenAI has it; its function alone is enough, and without parameters it takes none."""
    if "function" in tool:
        return tool
    return {"type": "function", "function": {"parameters": {"type": "object", "properties": {}}, **tool}}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        raise DecodeError("calls", "must have arguments by name")
    return {**call, "arguments": {name: [value] for name, value in arguments.items()}}


def _function(named: str, folder: Path) -> dict[str, str]:
    """A function of the author's, with the digest of its file, which is read and never run here."""
    file, _, name = named.partition(":")
    try:
        source = (folder / file).read_bytes()
        defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    except (OSError, SyntaxError, ValueError) as error:
        raise DecodeError("python", f"must be FILE.py:FUNCTION; {file or named}: {error}") from None
    if name not in defined:
        raise DecodeError("python", f"{file} defines no function {name!r}{nearest(name, defined)}")
    return {"file": file, "function": name, "sha256": hashlib.sha256(source).hexdigest()}


def _yaml(path: Path) -> OwnSuite:
    from gates.suite import yaml_file  # not at the gateway's start, which reads no such file

    try:
        value = yaml_file.loads(read_text(path, SuiteError, MOST_BYTES))
        return read(OwnSuite, {"prompts": value or []} if isinstance(value, list | None) else value)
    except yaml_file.YamlError as error:
        raise SuiteError(f"{path}:{error}") from None
    except DecodeError as refused:
        raise SuiteError(f"{path}: {refused}") from None
