"""The words of a scripted engine: steps of a reply, and the chunks that engines send."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

DONE = b"data: [DONE]\n\n"
Framing = Literal["chunked", "length", "close"]


@dataclass(frozen=True)
class Head:
    """The head of a reply. `length` needs `size`; `close` lasts until the connection ends."""

    code: int = 200
    content_type: str = "text/event-stream"
    framing: Framing = "chunked"
    size: int = 0
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Say:
    """Some of the body. `mark` names the moment in the request's `marks`."""

    data: bytes
    mark: str = ""


@dataclass(frozen=True)
class Raw:
    """Bytes on the wire, outside any framing."""

    data: bytes


@dataclass(frozen=True)
class Wait:
    """Do nothing for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Until:
    """Do nothing until a test says so."""

    event: asyncio.Event


@dataclass(frozen=True)
class Repeat:
    """Some of the body, again and again, `every` so many seconds, until a test says so."""

    data: bytes
    every: float
    until: asyncio.Event


@dataclass(frozen=True)
class Tell:
    """Let a test know that the script got here."""

    event: asyncio.Event


@dataclass(frozen=True)
class Do:
    """Call this with how many bytes of body were sent so far, and wait for it."""

    what: Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Hang:
    """Do nothing more, and leave the connection open."""


@dataclass(frozen=True)
class CloseNow:
    """End the connection, in order but without ending the reply."""


@dataclass(frozen=True)
class Reset:
    """End the connection with a RST."""


Step = Head | Say | Raw | Wait | Until | Repeat | Tell | Do | Hang | CloseNow | Reset


def event(payload: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    """One chat.completion.chunk with this delta."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    shared = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return event({**shared, "choices": [choice], **more})


def role() -> bytes:
    """The role chunk, as vLLM sends it."""
    return chunk({"role": "assistant", "content": ""})


def text(content: str) -> bytes:
    """A content chunk."""
    return chunk({"content": content})


def thought(content: str) -> bytes:
    """A reasoning chunk, in vLLM's field."""
    return chunk({"reasoning": content})


def call(name: str, arguments: str, index: int = 0) -> bytes:
    """A whole tool call in one chunk."""
    function = {"name": name, "arguments": arguments}
    tool = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return chunk({"tool_calls": [tool]})


def finish(reason: str = "stop") -> bytes:
    """The finish chunk."""
    return chunk({}, reason)


def usage(completion: int, prompt: int = 7) -> bytes:
    """The usage chunk."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    shared = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return event({**shared, "choices": [], "usage": {**counts, "total_tokens": prompt + completion}})


def reply(*said: str, reason: str = "stop", tokens: int | None = None) -> tuple[Step, ...]:
    """A whole streamed reply of these pieces of text."""
    counted = [Say(usage(len(said) if tokens is None else tokens))]
    return (Head(), Say(role()), *(Say(text(t)) for t in said), Say(finish(reason)), *counted, Say(DONE))


def vectors(*numbers: float | None) -> tuple[Step, ...]:
    """A whole reply of `/v1/embeddings` with one vector."""
    data = [{"object": "embedding", "index": 0, "embedding": list(numbers)}]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return status(200, {"object": "list", "data": data, "model": "scripted", "usage": usage})


def status(
    code: int, body: bytes | dict[str, Any] = b"", content_type: str = "application/json"
) -> tuple[Step, ...]:
    """A whole reply that is no stream."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    return (Head(code, content_type, "length", len(data)), Say(data))
