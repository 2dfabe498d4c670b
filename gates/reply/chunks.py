"""Chat-completion JSON to events: both engines' shapes, streamed or whole.

Only the fields that carry speech are declared; msgspec skips the rest without building it. vLLM says `reasoning`, llama-server and older vLLM
`reasoning_content`; null, "" and absent are the same.
"""

import re
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from gates.reply.events import Broken, CallArguments, CallStart, Done, Event, Finish, Text, Thought, Usage

MAX_CHOICES = 16
"""In one payload. One choice is asked for, and a payload is taken in one go, while everybody else waits."""
MAX_CALL_DELTAS = 1024


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: Raw = Raw()  # a fragment of JSON text; a few servers send the object itself


class _ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[_ToolDelta], Meta(max_length=MAX_CALL_DELTAS)] | None = None


class _Choice(Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM's: the stop sequence, or a token's number
    text: str | None = None  # a legacy completion's


class _Chunk(Struct, gc=False):
    choices: Annotated[list[_Choice], Meta(max_length=MAX_CHOICES)] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    object: Any = None


# msgspec takes 12 us for some floats (`1e300`), two seconds for a megabyte of them; Python takes one.
_decode = msgspec.json.Decoder(_Chunk, float_hook=float).decode
decode_any = msgspec.json.Decoder(float_hook=float).decode
"""Any JSON of an engine, in linear work whatever its numbers are."""
_decode_text = msgspec.json.Decoder(str).decode
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # codes reach the log: a word, never an engine's sentence

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for foreign bytes: no JSON or the wrong types, no UTF-8, nested too deep."""
_GIVEN_UP = re.compile(
    "abort|cancel|disconnect|error|evict|exhaust|fail|insufficient|interrupt|kill|overload|preempt|shutdown|timed?_?out|unload",
    re.IGNORECASE,
)
"""In the finish reason of an engine that did not bring its reply to an end: vLLM's and SGLang's `abort`, DeepSeek's
`insufficient_system_resource`, and what others would say."""
MAX_COUNT = 2**53
"""Largest token count that is believed, and the largest whole number that every reader of JSON has."""
MAX_COUNTS = 64
"""Most entries of a `usage` object, and of each object in it."""
MAX_ERROR_CHARS = 4000
"""What is kept of an engine's error message."""


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
    except UNREADABLE as error:
        raise MalformedChunk(why_unreadable(error)) from error
    if chunk.error is not None:
        return [read_error(chunk.error)]
    if chunk.object == "error":  # vLLM's and SGLang's, until 2025: the error itself, in no envelope
        return [read_error(decode_any(payload))]
    events: list[Event] = []
    for choice in chunk.choices or ():
        _read_choice(choice, events)
    if chunk.usage and (counts := read_counts(chunk.usage)):
        events.append(Usage(counts))
    return events


def _plain(struct: type[Struct], known: list[Any], is_strict: bool = False) -> Any:
    """The struct's known fields; each other one must be null or absent (`is_strict`: any other), so that the short way drops none."""
    names = {field[0] for field in known}
    others = [(name, None, None) for name in struct.__struct_fields__ if name not in names]
    return msgspec.defstruct("_Plain", [*known, *others], gc=False, forbid_unknown_fields=is_strict)


_text = Annotated[str, Meta(min_length=1)]
_PlainDelta = _plain(
    _Delta, [("content", _text), ("role", Any, None), ("refusal", None, None)], is_strict=True
)
_PlainChoice = _plain(_Choice, [("delta", _PlainDelta), ("index", Literal[0], 0)])
# A chunk that is text and nothing else, as a type: msgspec does the looking, in C.
_PlainChunk = _plain(_Chunk, [("choices", tuple[_PlainChoice]), ("object", Any, None)])  # type: ignore[valid-type]
_decode_plain = msgspec.json.Decoder(_PlainChunk, float_hook=float).decode


def plain_text(payload: bytes) -> str | None:
    """The text, if the payload is one delta of visible text of choice 0 and says nothing else."""
    try:
        text: str = _decode_plain(payload).choices[0].delta.content
    except UNREADABLE:
        return None
    return text


def _read_choice(choice: _Choice, events: list[Event]) -> None:
    if choice.index != 0:
        raise MalformedChunk("a choice that was not asked for")
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
        if not _WORD.fullmatch(choice.finish_reason):
            raise MalformedChunk("a finish_reason that is no word")
        if _GIVEN_UP.search(choice.finish_reason):
            events.append(Broken("the engine gave its reply up before its end", "upstream_truncated"))
            return
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


def _fragment(arguments: Raw) -> str:
    """The text in a JSON string; of any other value its JSON, to the letter. null and absent are ""."""
    said = bytes(arguments)
    if said in (b"", b"null"):
        return ""
    try:
        return _decode_text(said) if said.startswith(b'"') else said.decode()
    except UNREADABLE as error:
        raise MalformedChunk(why_unreadable(error)) from error


def why_unreadable(error: Exception) -> str:
    """What was wrong, without the bytes that it was wrong in."""
    if isinstance(error, UnicodeDecodeError):
        return "no UTF-8"
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


def read_counts(usage: dict[str, Any]) -> dict[str, Any]:
    """The token counts of a `usage` object, which reach callers and metrics: numbers in range, and objects of such, one level deep."""
    counts: dict[str, Any] = {}
    for name, value in islice(usage.items(), MAX_COUNTS):
        if isinstance(value, dict):
            inner = islice(value.items(), MAX_COUNTS)
            counts[name] = {key: number for key, number in inner if _is_count(number)}
        elif _is_count(value):
            counts[name] = value
    return counts


def _is_count(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= MAX_COUNT)


def read_error(error: Any) -> Broken:
    """The engine's error in any shape. A number is the status that the error would have had, and no word for a program."""
    if not isinstance(error, dict):
        return Broken(_sentence(error), "engine_error", by_engine=True)
    message = _sentence(error.get("message") or error.get("detail"))
    code, kind = error.get("code"), error.get("type")
    words = [
        word
        for word in (code, kind)
        if isinstance(word, str) and _WORD.fullmatch(word) and not word.isdigit()
    ]
    status = code if type(code) is int and 100 <= code < 600 else 0
    return Broken(message, words[0] if words else "engine_error", status, by_engine=True)


def _sentence(said: Any) -> str:
    text = said[:MAX_ERROR_CHARS] if isinstance(said, str) else ""
    return text or "the engine reported an error"
