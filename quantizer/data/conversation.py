r"""Conversations with tools as stored on disk: one JSON object a line, in the format of OpenAI's API.

    {"messages": [{"role": "user", "content": "..."},
                  {"role": "assistant", "content": "", "tool_calls": [{"id": "call_0", "type": "function",
                      "function": {"name": "web_search", "arguments": "{\"query\": \"rain\"}"}}]}, …],
     "tools": [{"type": "function", "function": {"name": "web_search", "parameters": {...}}}],
     "chat_template_kwargs": {"enable_thinking": false}}

`tools` and `chat_template_kwargs` are optional; so is `expect`, what a gate expects of the last reply (docs/gates.md). In memory `arguments` is an object, because chat templates print it as one.
A thought is `reasoning_content`. A file may be packed by xz (NAME.jsonl.xz).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import lzma
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import msgspec

from gates.contracts import strict_json
from gates.suite.expect import check_expectation
from quantizer.core.errors import DataError

KEYS: Final = ("messages", "tools", "chat_template_kwargs", "expect")
THOUGHTS: Final = ("reasoning_content", "reasoning")
END_OF_THOUGHT: Final = "</think>"
_NUMBERED: Final = re.compile(r"(.+?)[-_:/.]\d+")
MAX_LINE: Final = 16 * 2**20  # bytes; far more than a model can read

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One validated line: messages as a template takes them, and `switches`, keyword arguments for the template. kind: what
    stands before the number of its id, such as greeting in greeting-00012; without such an id, whether it has calls or tools."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    switches: Mapping[str, Any] = field(default_factory=dict)
    where: str = "conversation"
    kind: str = "text"
    expect: Mapping[str, Any] = field(default_factory=dict)

    @property
    def thinks(self) -> bool:
        """Whether any message of the assistant has a thought."""
        return any(thought_of(message) for message in self.messages if message["role"] == "assistant")

    def without_thoughts(self) -> Conversation:
        """A copy without any thoughts."""
        return replace(self, messages=tuple(_thoughtless(message) for message in self.messages))


def read(path: Path) -> Iterator[Conversation]:
    """The conversations of a file, in order. Raises DataError with file, line and reason."""
    for number, line in lines(path):
        yield parse(line, f"{path}:{number}")


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, with their numbers; of a longer one than MAX_LINE a part. Raises DataError."""
    with opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), start=1):
            if line.strip():
                yield number, line


def file_digest(path: Path) -> str:
    """`sha256:` and the digest of a file, unpacked: the identity of the data in an artefact. Raises DataError."""
    sha = hashlib.sha256()
    with opened(path) as file:
        while part := file.read(1 << 20):
            sha.update(part)
    return f"sha256:{sha.hexdigest()}"


def parse(line: bytes | str, where: str = "conversation") -> Conversation:
    """Parse one line. Raises DataError."""
    if len(line) > MAX_LINE:
        raise DataError(f"{where}: longer than {MAX_LINE} bytes")
    try:
        row = strict_json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: is no conversation; a line is an object with messages")
    return from_row(row, where)


def from_row(row: Mapping[str, Any], where: str = "conversation") -> Conversation:
    """A conversation from a parsed row. Raises DataError."""
    for key in row:  # a misspelled key would be ignored silently, and with it, for example, the tools
        near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.7)
        if near and key not in KEYS:
            raise DataError(f"{where}: unknown key {key!r}; did you mean {near[0]!r}?")
    tools = row.get("tools") or []
    try:
        if isinstance(tools, str):  # tables with one type per column store it so
            tools = json.loads(tools)
        msgspec.convert({**row, "tools": tools}, _Row)
        known = [{"function": {"parameters": {}} | tool["function"]} for tool in tools]
        check_expectation(expect := row.get("expect") or {}, expect, known)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{where}: {error}") from None
    switches = row.get("chat_template_kwargs") or {}
    if reserved := switches.keys() & _RESERVED:
        raise DataError(f"{where}: chat_template_kwargs cannot set {', '.join(sorted(reserved))}")
    made = tuple(_message(message, f"{where}: message {i}") for i, message in enumerate(row["messages"]))
    if not any(message["role"] == "assistant" for message in made):
        raise DataError(f"{where}: has no message of the assistant's, so there is nothing to learn")
    calls = any("tool_calls" in message for message in made)
    named = _NUMBERED.fullmatch(str(row.get("id")))
    kind = named[1] if named else "calls" if calls else "tools" if tools else "text"
    return Conversation(made, tuple(tools), switches, where, kind, expect)


def thought_of(message: Mapping[str, Any]) -> str:
    """The thought of an assistant's message: from its own field, or the text before </think>; "" if there is none."""
    for name in THOUGHTS:
        if isinstance(message.get(name), str) and message[name].strip():
            return str(message[name])
    content = message.get("content") or ""
    return str(content).split(END_OF_THOUGHT)[0] if END_OF_THOUGHT in content else ""


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file of conversations for reading, unpacked. Raises DataError, also from within, if it cannot be read."""
    try:
        with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as file:
            yield file
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


# ------------------------------------------------------------------------------------------ checking

_RESERVED: Final = frozenset(
    ("messages", "conversation", "tools", "add_generation_prompt", "chat_template", "tokenize", "return_dict")
)


class _Part(msgspec.Struct):
    text: str


class _Function(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    arguments: dict[str, Any] | str | None = None


class _Call(msgspec.Struct):
    function: _Function


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Tool(msgspec.Struct):
    function: _Function


class _Row(msgspec.Struct):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    tools: list[_Tool]
    chat_template_kwargs: dict[str, Any] | None = None


def _message(message: Message, where: str) -> Message:
    """A message of the shape of `_Message` as templates take it: text, and arguments as objects."""
    content = message.get("content") or ""
    if isinstance(content, list):  # parts are joined with line breaks, as in vLLM
        content = "\n".join(part["text"] for part in content)
    made = {key: value for key, value in message.items() if key != "tool_calls"} | {"content": content}
    if calls := message.get("tool_calls"):
        if message["role"] != "assistant":
            raise DataError(f"{where}: only the assistant can have tool_calls")
        made["tool_calls"] = [_call(call, f"{where}, call {i}") for i, call in enumerate(calls)]
    elif message["role"] == "assistant" and not content.strip():
        raise DataError(f"{where}: the assistant says nothing and calls nothing")
    return made


def _call(call: dict[str, Any], where: str) -> dict[str, Any]:
    arguments = call["function"].get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            raise DataError(f"{where}: arguments are not JSON") from None
    if not isinstance(arguments, dict):
        raise DataError(f"{where}: arguments must be a JSON object")
    return {**call, "function": {**call["function"], "arguments": arguments}}


# ------------------------------------------------------------------------------------------- changing


def _thoughtless(message: Message) -> Message:
    if message["role"] != "assistant":
        return message
    kept = {key: value for key, value in message.items() if key not in THOUGHTS}
    return kept | {"content": kept["content"].split(END_OF_THOUGHT)[-1].lstrip("\n")}
