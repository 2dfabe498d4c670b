"""A small stand-in for both ends of the wire: what engines send, and how a caller reads it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from app.api.surface import MessageCollector
from app.stream.encode import ReplyHead, StreamEncoder
from app.stream.holdback import ThinkPolicy
from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.schema import Tools, UnaskedCalls
from gates.reply.events import Broken, Event
from gates.reply.sse import SSEDecoder

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": properties},
        },
    }
    for name, properties in {
        "search_memory": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "web_search": {"query": {"type": "string"}},
        "set_light": {"on": {"type": "boolean"}, "room": {"type": "string"}},
        "set_volume": {"volume": {"type": "integer"}},
        "run": {"command": {"type": "string"}, "env": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
        "now": {},
    }.items()
]

DECLARED = Tools(TOOLS)
HEAD = ReplyHead("chatcmpl-test", 1_790_000_000, "annie", "separate", True)

Delta = dict[str, Any] | str


def chunk(delta: Delta, finish: str | None = None, **more: Any) -> bytes:
    """One chat.completion.chunk as an SSE event; a str is its content."""
    if finish is None and not more:
        name, text = ("content", delta) if isinstance(delta, str) else next(iter(delta.items()), ("", None))
        if isinstance(text, str) and (isinstance(delta, str) or len(delta) == 1):
            return _piece(name, text)
    return _chunk(delta, finish, **more)


@lru_cache(1 << 14)
def _piece(name: str, text: str) -> bytes:
    """Most chunks of the tests are the same few."""
    return _chunk({name: text})


def _chunk(delta: Delta, finish: str | None = None, **more: Any) -> bytes:
    body = {"content": delta} if isinstance(delta, str) else delta
    choice = {"index": 0, "delta": body, "logprobs": None, "finish_reason": finish}
    return event(
        {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
            **more,
        }
    )


def event(payload: Any) -> bytes:
    """One SSE event."""
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def stream(*deltas: Delta, finish: str | None = "stop", done: bool = True) -> bytes:
    """A whole reply: role chunk, deltas, finish chunk, [DONE]."""
    parts = [chunk({"role": "assistant", "content": ""}), *(chunk(d) for d in deltas)]
    if finish:
        parts.append(chunk({}, finish))
    return b"".join(parts) + (b"data: [DONE]\n\n" if done else b"")


def policy(
    *,
    tools: bool = True,
    thinking: bool = False,
    guard: int = 0,
    reasoning_is_answer: bool = False,
    after: int | None = None,
    unasked: UnaskedCalls = "strip",
    json_asked: bool = False,
) -> StreamPolicy:
    """What a request lets the core assume."""
    opened = thinking and guard > 0
    think = ThinkPolicy(thinking, guard, reasoning_is_answer, after, opened)
    return StreamPolicy(think, DECLARED if tools else None, "t", unasked=unasked, json=json_asked)


def pieces(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """`data` cut into chunks of these sizes; the last one takes the rest."""
    at = 0
    for size in sizes:
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size
    if at < len(data):
        yield data[at:]


def run(data: bytes, policy: StreamPolicy, sizes: Iterable[int] = ()) -> list[Event]:
    """Events of a whole reply that arrives in pieces of these sizes (none: in one)."""
    pipeline = Pipeline(policy)
    events = [e for piece in pieces(data, sizes) for e in pipeline.feed(piece)]
    return [*events, *pipeline.close()]


@dataclass
class Heard:
    """What a caller got."""

    content: str = ""
    thought: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str | None = None
    error: str | None = None
    done: bool = False
    usage: dict[str, Any] | None = None


def heard_streaming(data: bytes, policy: StreamPolicy, sizes: Iterable[int] = ()) -> Heard:
    """What a streaming caller got, read as an OpenAI client reads it, with its rules checked."""
    return heard_through(Pipeline(policy), data, sizes)


def heard_through(pipeline: Pipeline, data: bytes, sizes: Iterable[int] = ()) -> Heard:
    """The same, through a pipeline that can be asked about it afterwards."""
    encoder = StreamEncoder(HEAD)
    wire = b"".join(encoder.feed(e) for p in pieces(data, sizes) if (e := pipeline.feed(p)))
    wire += encoder.feed(pipeline.close())
    return read_wire(wire)


def read_wire(wire: bytes) -> Heard:
    """Read a caller's stream; asserts what every client relies on."""
    heard, roles = Heard(), 0
    calls: dict[int, list[str]] = {}
    for payload in SSEDecoder().feed(wire):
        assert not heard.done, "nothing follows [DONE]"
        if payload == b"[DONE]":
            assert heard.error is None, "an error is not followed by [DONE]"
            heard.done = True
            continue
        data = json.loads(payload)
        if "error" in data:
            heard.error = data["error"]["code"]
            continue
        assert heard.error is None, "nothing but the end follows an error"
        heard.usage = data.get("usage") or heard.usage
        for choice in data["choices"]:
            assert heard.finish is None, "no delta follows finish_reason"
            delta = choice["delta"]
            roles += "role" in delta
            heard.content += delta.get("content") or ""
            heard.thought += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                _take_call(call, calls)
            heard.finish = choice["finish_reason"]
    assert roles <= 1
    assert list(calls) == list(range(len(calls))), "indexes count from 0"
    heard.calls = [(name, args) for name, args in calls.values()]
    return heard


def _take_call(call: dict[str, Any], calls: dict[int, list[str]]) -> None:
    function = call["function"]
    if call["index"] not in calls:
        assert call["id"] and call["type"] == "function" and function["name"]
        calls[call["index"]] = [function["name"], function["arguments"]]
        return
    assert "id" not in call and "name" not in function
    calls[call["index"]][1] += function["arguments"]


def heard_whole(data: bytes, policy: StreamPolicy, sizes: Iterable[int] = ()) -> Heard:
    """What a caller who does not stream got."""
    collector = MessageCollector(HEAD)
    collector.feed(events := run(data, policy, sizes))
    if broken := [event for event in events if isinstance(event, Broken)]:
        return Heard(error=broken[-1].code)
    reply = json.loads(collector.message())
    message = reply["choices"][0]["message"]
    return Heard(
        message["content"] or "",
        message.get("reasoning_content", ""),
        [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())],
        reply["choices"][0]["finish_reason"],
        None,
        True,
        reply["usage"],
    )
