r"""Conversations with tools as stored on disk: one JSON object a line, in the format of OpenAI's API.

    {"messages": [{"role": "user", "content": "..."},
                  {"role": "assistant", "content": "", "tool_calls": [{"id": "call_0", "type": "function",
                      "function": {"name": "web_search", "arguments": "{\"query\": \"rain\"}"}}]}, …],
     "tools": [{"type": "function", "function": {"name": "web_search", "parameters": {...}}}],
     "chat_template_kwargs": {"enable_thinking": false}}

`tools` and `chat_template_kwargs` are optional. In memory `arguments` is an object, because chat templates print it as one.
A thought is `reasoning_content`. A file may be packed by xz (NAME.jsonl.xz).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import lzma
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from gates.contracts import strict_json
from quantizer.core.errors import DataError

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
KEYS: Final = ("messages", "tools", "chat_template_kwargs")
THOUGHTS: Final = ("reasoning_content", "reasoning")
END_OF_THOUGHT: Final = "</think>"
MAX_LINE: Final = 16 * 2**20  # bytes; far more than a model can read

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One validated line: messages as a template takes them, and `switches`, keyword arguments for the template."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    switches: Mapping[str, Any] = field(default_factory=dict)
    where: str = "conversation"

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
    _check_keys(row, where)
    messages, switches = row.get("messages"), row.get("chat_template_kwargs") or {}
    if not isinstance(messages, list) or not messages:
        raise DataError(f"{where}: messages must be a list with at least one message")
    if not isinstance(switches, dict):
        raise DataError(f"{where}: chat_template_kwargs must be an object")
    if reserved := switches.keys() & _RESERVED:
        raise DataError(f"{where}: chat_template_kwargs cannot set {', '.join(sorted(reserved))}")
    made = tuple(_message(message, f"{where}: message {i}") for i, message in enumerate(messages))
    tools = tuple(_tool(tool, f"{where}: tool {i}") for i, tool in enumerate(_tools(row, where)))
    if not any(message["role"] == "assistant" for message in made):
        raise DataError(f"{where}: has no message of the assistant's, so there is nothing to learn")
    return Conversation(made, tools, switches, where)


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


def _check_keys(row: Mapping[str, Any], where: str) -> None:
    """Reject misspelled keys. They would be ignored silently, and with them, for example, the tools."""
    for key in row:
        near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.7)
        if near and key not in KEYS:
            raise DataError(f"{where}: unknown key {key!r}; did you mean {near[0]!r}?")


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, dict):
        raise DataError(f"{where}: must be an object with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise DataError(f"{where}: role {role!r} is not known; known: {', '.join(ROLES)}")
    made = {**message, "content": _content(message.get("content"), where)}
    for name in THOUGHTS:
        if message.get(name) is not None and not isinstance(message[name], str):
            raise DataError(f"{where}: {name} must be a text")
    if message.get("tool_calls"):
        made["tool_calls"] = _calls(message["tool_calls"], role, where)
    else:
        made.pop("tool_calls", None)
    if role == "assistant" and not (made["content"].strip() or made.get("tool_calls")):
        raise DataError(f"{where}: the assistant says nothing and calls nothing")
    return made


def _content(content: Any, where: str) -> str:
    """The content as a string; null is empty, and parts are joined with line breaks, as in vLLM."""
    if content is None:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"{where}: content has a part that is not text")
        return "\n".join(map(str, texts))
    if not isinstance(content, str):
        raise DataError(f"{where}: content must be a text, a list of texts or null")
    return content


def _calls(calls: Any, role: str, where: str) -> list[dict[str, Any]]:
    if role != "assistant":
        raise DataError(f"{where}: only the assistant can have tool_calls")
    if not isinstance(calls, list):
        raise DataError(f"{where}: tool_calls must be a list")
    return [_call(call, f"{where}, call {i}") for i, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise DataError(f"{where}: must be an object with function.name and function.arguments")
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"), where)}}


def _arguments(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except ValueError:
            raise DataError(f"{where}: arguments are not JSON") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: arguments must be a JSON object")
    return value


def _tools(row: Mapping[str, Any], where: str) -> list[Any]:
    """The list of tools. A JSON string is also accepted, because tables with one type per column store it so."""
    tools = row.get("tools") or []
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError:
            raise DataError(f"{where}: tools are a text that is not JSON") from None
    if not isinstance(tools, list):
        raise DataError(f"{where}: tools must be a list")
    return tools


def _tool(tool: Any, where: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(f'{where}: must be {{"type": "function", "function": {{"name": ...}}}}')
    return tool


# ------------------------------------------------------------------------------------------- changing


def _thoughtless(message: Message) -> Message:
    if message["role"] != "assistant":
        return message
    kept = {key: value for key, value in message.items() if key not in THOUGHTS}
    return kept | {"content": kept["content"].split(END_OF_THOUGHT)[-1].lstrip("\n")}
