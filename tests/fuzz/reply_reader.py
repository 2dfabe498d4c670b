"""What a caller hears of a reply: through the core and any of the four surfaces, streamed or whole."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.api.completions import Completions
from app.api.engine_request import AskedEngine
from app.api.messages import Messages
from app.api.responses import Responses
from app.api.surface import ChatCompletions, ParsedRequest, Surface
from app.stream.encode import ReplyHead
from app.stream.pipeline import Pipeline, StreamPolicy
from gates.contracts.dialect import Dialect
from gates.reply.events import Broken, CallArguments, CallStart, Event, Finish, Text, Thought
from gates.reply.sse import SSEDecoder
from tests.app.stream.wire import TOOLS

CHATS: dict[str, Surface] = {
    "chat": ChatCompletions(),
    "messages": Messages(),
    "responses": Responses(),
}
COMPLETIONS: Surface = Completions()


@dataclass
class Heard:
    """What a caller got. Calls are names and arguments as text; `finish` in OpenAI's words.

    places: of each call, the length of the text before it; of events only.
    """

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str | None = None
    error: str | None = None
    thought: str = ""
    places: list[int] = field(default_factory=list)

    @property
    def parsed(self) -> list[tuple[str, Any]]:
        """The calls with their arguments as values."""
        return [(name, _value(text)) for name, text in self.calls]

    def holds(self, word: str, calls: bool = True) -> bool:
        """Whether a word was heard: as text, or in a call."""
        return word in self.text or (calls and any(word in name + text for name, text in self.calls))


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_int=str)
    except ValueError:
        return text


_ASKED: dict[tuple[str, bool, bool], ParsedRequest] = {}


def asked(surface: Surface, stream: bool, tools: bool) -> ParsedRequest:
    """A request of this surface. Each is parsed once."""
    key = (surface.path, stream, tools)
    if key not in _ASKED:
        _ASKED[key] = surface.parse(_request(surface.path, stream, tools), 512)
    return _ASKED[key]


def _request(path: str, stream: bool, tools: bool) -> bytes:
    body: dict[str, Any] = {"model": "annie", "stream": stream}
    turn = [{"role": "user", "content": "Hi"}]
    flat = [tool["function"] for tool in TOOLS]
    if path == "/v1/chat/completions":
        body |= {"messages": turn, **({"tools": TOOLS} if tools else {})}
    elif path == "/v1/messages":
        declared = [{"name": f["name"], "input_schema": {"type": "object", **f["parameters"]}} for f in flat]
        body |= {"messages": turn, "max_tokens": 1000, **({"tools": declared} if tools else {})}
    elif path == "/v1/responses":
        declared = [{"type": "function", **f} for f in flat]
        body |= {"input": "Hi", **({"tools": declared} if tools else {})}
    else:
        body |= {"prompt": "Hi"}
    return json.dumps(body).encode()


def policy_of(
    surface: Surface, dialect: Dialect, *, stream: bool, tools: bool, thinking: bool, guard: int
) -> StreamPolicy:
    """What the gateway lets the core assume of such a reply."""
    request = asked(surface, stream, tools)
    return surface.policy(request, AskedEngine(dialect, thinking=None if thinking else 0, guard=guard), "t")


# ------------------------------------------------------------------------------------------ events


def events_of(reads: Iterable[bytes], policy: StreamPolicy) -> list[Event]:
    """Every event of a reply that arrives in these reads."""
    pipeline = Pipeline(policy)
    events = [event for read in reads for event in pipeline.feed(read)]
    return [*events, *pipeline.close()]


def heard_of(events: Sequence[Event]) -> Heard:
    """What the events say, whatever their number."""
    heard = Heard()
    calls: list[list[str]] = []
    texts: list[str] = []
    for event in events:
        if isinstance(event, Text):
            texts.append(event.text)
        elif isinstance(event, Thought):
            heard.thought += event.text
        elif isinstance(event, CallStart):
            calls.append([event.name, ""])
            heard.places.append(sum(map(len, texts)))
        elif isinstance(event, CallArguments):
            calls[event.index][1] += event.fragment
        elif isinstance(event, Finish):
            heard.finish = event.reason
        elif isinstance(event, Broken):
            heard.error = event.code
    heard.text = "".join(texts)
    heard.calls = [(name, text) for name, text in calls]
    return heard


# ---------------------------------------------------------------------------------------- surfaces

HEAD = ReplyHead("chatcmpl_test", 1_790_000_000, "annie", "strip", True)


def streamed(surface: Surface, reads: Iterable[bytes], policy: StreamPolicy) -> Heard:
    """What a streaming caller of this surface reads off the wire; the gateway's short way is taken."""
    pipeline = Pipeline(policy)
    encoder = surface.encoder(HEAD)
    wire = b""
    for read in reads:
        texts = pipeline.passes(read)
        wire += encoder.feed(pipeline.feed(read)) if texts is None else encoder.texts(texts)
    wire += encoder.feed(pipeline.close())
    return READERS[surface.path](SSEDecoder().feed(wire))


def collected(surface: Surface, events: Sequence[Event]) -> Heard:
    """What a caller of this surface gets who does not stream: the reply, or an error and no reply."""
    for event in events:
        if isinstance(event, Broken):
            return Heard(error=event.code)
    collector = surface.collector(HEAD)
    collector.feed(events)
    return WHOLE[surface.path](json.loads(collector.message()))


def _read_chat(payloads: list[bytes]) -> Heard:
    heard, calls = Heard(), list[list[str]]()
    for payload in payloads:
        assert heard.error is None, "something follows an error"
        if payload == b"[DONE]":
            continue
        data = json.loads(payload)
        if "error" in data:
            heard.error = data["error"]["code"]
            continue
        for choice in data["choices"]:
            assert heard.finish is None, "a delta follows the finish_reason"
            delta = choice.get("delta", {})
            heard.text += delta.get("content") or choice.get("text") or ""
            for call in delta.get("tool_calls") or ():
                if "id" in call:
                    assert call["index"] == len(calls), "calls are not counted from 0"
                    calls.append([call["function"]["name"], ""])
                calls[call["index"]][1] += call["function"]["arguments"]
            heard.finish = choice["finish_reason"]
    heard.calls = [(name, text) for name, text in calls]
    return heard


_STOPS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def _read_messages(payloads: list[bytes]) -> Heard:
    heard, calls = Heard(), list[list[str]]()
    for payload in payloads:
        data = json.loads(payload)
        if data["type"] == "error":
            heard.error = _code(data)
            break
        if data["type"] == "content_block_start" and data["content_block"]["type"] == "tool_use":
            calls.append([data["content_block"]["name"], ""])
        elif data["type"] == "content_block_delta":
            delta = data["delta"]
            if delta["type"] == "text_delta":
                heard.text += delta["text"]
            elif delta["type"] == "input_json_delta":
                calls[-1][1] += delta["partial_json"]
        elif data["type"] == "message_delta":
            heard.finish = _STOPS.get(data["delta"]["stop_reason"], data["delta"]["stop_reason"])
    heard.calls = [(name, text) for name, text in calls]
    return heard


def _code(data: dict[str, Any]) -> str:
    error = data["error"]
    return str(error.get("code") or error["type"])


def _read_responses(payloads: list[bytes]) -> Heard:
    heard, calls = Heard(), list[list[str]]()
    for payload in payloads:
        data = json.loads(payload)
        kind = data["type"]
        if kind == "response.failed":
            heard.error = data["response"]["error"]["type"]
            break
        if kind == "response.output_text.delta":
            heard.text += data["delta"]
        elif kind == "response.output_item.added" and data["item"]["type"] == "function_call":
            calls.append([data["item"]["name"], ""])
        elif kind == "response.function_call_arguments.delta":
            calls[-1][1] += data["delta"]
        elif kind in ("response.completed", "response.incomplete"):
            told = _whole_response(data["response"])
            heard.calls = [(name, text) for name, text in calls]
            assert (told.text, told.calls) == (heard.text, heard.calls), "the end repeats something else"
            heard.finish = told.finish
    heard.calls = [(name, text) for name, text in calls]
    return heard


def _whole_chat(reply: dict[str, Any]) -> Heard:
    choice = reply["choices"][0]
    message = choice.get("message") or {"content": choice["text"]}
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    return Heard(message["content"] or "", calls, choice["finish_reason"])


def _whole_message(reply: dict[str, Any]) -> Heard:
    blocks = reply["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [(b["name"], json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"]
    return Heard(text, calls, _STOPS.get(reply["stop_reason"], reply["stop_reason"]))


def _whole_response(reply: dict[str, Any]) -> Heard:
    items = reply["output"]
    text = "".join(p["text"] for item in items if item["type"] == "message" for p in item["content"])
    calls = [(item["name"], item["arguments"]) for item in items if item["type"] == "function_call"]
    finish = "tool_calls" if calls else "stop"
    if reply["status"] == "incomplete":
        reason = reply["incomplete_details"]["reason"]
        finish = "length" if reason == "max_output_tokens" else reason
    return Heard(text, calls, finish)


READERS = {
    "/v1/chat/completions": _read_chat,
    "/v1/messages": _read_messages,
    "/v1/responses": _read_responses,
    "/v1/completions": _read_chat,
}
WHOLE = {
    "/v1/chat/completions": _whole_chat,
    "/v1/messages": _whole_message,
    "/v1/responses": _whole_response,
    "/v1/completions": _whole_chat,
}
