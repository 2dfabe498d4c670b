"""Chat-completion JSON to events: both engines' shapes, streamed or whole.

Only the fields that carry speech are declared; msgspec skips the rest without building it, so
`prompt_progress`, `timings`, `token_ids` and their like cost next to nothing. vLLM says
`reasoning`, llama-server and older vLLM say `reasoning_content`; null, "" and absent are the same.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from app.stream.events import (
    Broken,
    CallArguments,
    CallStart,
    Done,
    Event,
    Finish,
    Text,
    Thought,
    Usage,
)


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: Any = None  # a fragment of JSON text; a few servers send the object itself


class _ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolDelta] | None = None


class _Choice(Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM's: the stop sequence, or a token's number
    text: str | None = None  # a legacy completion's


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # codes reach the log: a word, never an engine's sentence


class MalformedChunk(Exception):
    """The payload is not JSON, or not in the shape of a chat completion."""


def parse_payload(payload: bytes) -> list[Event]:
    """Events of one SSE payload (or of one whole JSON reply). Raises MalformedChunk."""
    if payload == b"[DONE]":
        return [Done()]
    if not payload or payload.isspace():
        return []
    try:
        chunk = _decode(payload)
    except msgspec.DecodeError as error:
        raise MalformedChunk(str(error)) from error
    if chunk.error is not None:
        return [read_error(chunk.error)]
    events: list[Event] = []
    for choice in chunk.choices or ():
        _read_choice(choice, events)
    if chunk.usage:
        events.append(Usage(chunk.usage))
    return events


class _PlainDelta(Struct, gc=False, forbid_unknown_fields=True):
    content: Annotated[str, msgspec.Meta(min_length=1)]
    role: Any = None
    reasoning: None = None
    reasoning_content: None = None
    tool_calls: None = None
    refusal: None = None


class _PlainChoice(Struct, gc=False):
    delta: _PlainDelta
    index: Literal[0] = 0
    finish_reason: None = None


class _PlainChunk(Struct, gc=False):
    """A chunk that is text and nothing else, as a type: msgspec does the looking, in C."""

    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None


_decode_plain = msgspec.json.Decoder(_PlainChunk).decode


def plain_text(payload: bytes) -> str | None:
    """The text, if the payload is one delta of visible text of choice 0 and says nothing else."""
    try:
        return _decode_plain(payload).choices[0].delta.content
    except msgspec.DecodeError:
        return None


def _read_choice(choice: _Choice, events: list[Event]) -> None:
    index, said = choice.index, choice.delta or choice.message
    if said is not None:
        thought = said.reasoning or said.reasoning_content
        if thought:
            events.append(Thought(index, thought))
        if said.content:
            events.append(Text(index, said.content))
        if said.tool_calls:
            _read_calls(index, said.tool_calls, events)
    elif choice.text:
        events.append(Text(index, choice.text))
    if choice.finish_reason:
        stop = choice.stop_reason
        events.append(Finish(index, choice.finish_reason, stop if isinstance(stop, str) else None))


def _read_calls(choice: int, deltas: list[_ToolDelta], events: list[Event]) -> None:
    for position, delta in enumerate(deltas):
        function = delta.function or _Function()
        index = position if delta.index is None else delta.index
        if function.name:
            events.append(CallStart(choice, index, function.name, delta.id))
        fragment = _fragment(function.arguments)
        if fragment:
            events.append(CallArguments(choice, index, fragment))


def _fragment(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def read_error(error: Any) -> Broken:
    """The engine's error in any of its shapes: an object, a bare text, or something else.

    A number is the status that the error would have had, and no word for a program.
    """
    if not isinstance(error, dict):
        return Broken(str(error), "engine_error")
    message = str(error.get("message") or error.get("detail") or "the engine reported an error")
    code, kind = error.get("code"), error.get("type")
    words = [
        str(word)
        for word in (code, kind)
        if isinstance(word, str) and _WORD.fullmatch(word) and not word.isdigit()
    ]
    return Broken(message, words[0] if words else "engine_error", code if isinstance(code, int) else 0)
