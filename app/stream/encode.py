"""Encodes events for the caller: as SSE chunks, or as one chat completion. An encoder encodes the fields that all chunks share once."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gates.reply.events import (
    Broken,
    CallArguments,
    CallStart,
    Done,
    Event,
    Finish,
    Logprobs,
    Text,
    Thought,
    TokenLogprob,
    Usage,
)

Reasoning = Literal["strip", "separate", "inline"]
"""Where a caller finds thoughts: nowhere, in `reasoning_content`, or in the text in think tags."""

CHOICE_FIELDS: dict[str, Any] = {"logprobs": None, "finish_reason": None}
"""What each choice says of itself beside its delta or its message, in a chunk and in a whole reply."""

DONE = b"data: [DONE]\n\n"
_json = msgspec.json.Encoder().encode


class ReplyHead(Struct, frozen=True):
    """What is the same in every part of one reply. `created` is Unix time in seconds."""

    id: str
    created: int
    model: str
    reasoning: Reasoning = "strip"
    include_usage: bool = False
    echo: dict[str, Any] = {}  # what the reply repeats of the request


class Inliner:
    """Writes thoughts into the text, in think tags, for `reasoning = "inline"`; else it changes nothing."""

    def __init__(self, reasoning: Reasoning) -> None:
        self.is_on = reasoning == "inline"
        self._open: set[int] = set()

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events, with thoughts made text and tags where a thought begins and ends."""
        return [shown for event in events for shown in self._inline(event)] if self.is_on else events

    def _inline(self, event: Event) -> list[Event]:
        if isinstance(event, Usage | Broken | Done):
            return [event]
        if type(event) is Thought:
            if not event.text:
                return []
            opening = "" if event.choice in self._open else "<think>\n"
            self._open.add(event.choice)
            return [Text(event.choice, opening + event.text.lstrip("\n") if opening else event.text)]
        if event.choice in self._open:
            self._open.remove(event.choice)
            return [Text(event.choice, "\n</think>\n\n"), event]
        return [event]


def _prefix(head: ReplyHead, object_name: str) -> bytes:
    """What a reply says of itself, in each chunk and in a whole one."""
    shared = {"id": head.id, "object": object_name, "created": head.created, "model": head.model}
    return _json(shared)[:-1]


def _choice(index: int, part: str, said: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"index": index, part: said, **CHOICE_FIELDS, **more}


_CONTENT, _CONTENT_END = (_json(_choice(0, "delta", {"content": ""})) + b"]}\n\n").split(b'""', 1)


def _delta(event: Event, reasoning: Reasoning) -> dict[str, Any]:
    """The fields that an event adds to the message of its choice; {} for an event that callers do not see."""
    if type(event) is Text:
        return {"content": event.text}
    if type(event) is Thought and reasoning == "separate" and event.text:
        return {"reasoning_content": event.text}
    if type(event) is CallStart:
        function = {"name": event.name, "arguments": ""}
        return {
            "tool_calls": [{"index": event.index, "id": event.id, "type": "function", "function": function}]
        }
    if type(event) is CallArguments:
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.fragment}}]}
    return {}


def error_frame(message: str, code: str, kind: str = "upstream_error") -> bytes:
    """An error after the first byte: one frame, and neither a finish reason nor [DONE] after it."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return b"data: " + _json({"error": error}) + b"\n\n"


class EventEncoder:
    """`feed` events, get SSE bytes: what encoders share whose API says by `_encode` what an event is on the wire."""

    fault = staticmethod(error_frame)

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._usage: Usage | None = None
        self._inliner = Inliner(head.reasoning)

    def feed(self, events: Sequence[Event]) -> bytes:
        """The bytes these events are on the wire; b"" when the caller is to see nothing."""
        out: list[bytes] = []
        for event in self._inliner.feed(events):
            if type(event) is Usage:
                self._usage = event
            elif type(event) is Broken:
                out.append(self.fault(event.message, event.code, "upstream_error"))
            else:
                self._encode(event, out)
        return b"".join(out)

    def texts(self, texts: Sequence[str]) -> bytes:
        """Plain texts of choice 0."""
        return self.feed([Text(0, text) for text in texts])

    def _encode(self, event: Event, out: list[bytes]) -> None:
        raise NotImplementedError


class EventCollector:
    """`feed` events, then take the whole reply: what collectors share whose API says by `_take` what an event adds."""

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        self._inliner = Inliner(head.reasoning)

    def feed(self, events: Sequence[Event]) -> None:
        """Take events in order."""
        for event in self._inliner.feed(events):
            if type(event) is Finish:
                self._finish = event
            elif type(event) is Usage:
                self._usage = event
            else:
                self._take(event)

    def texts(self, texts: Sequence[str]) -> None:
        """Plain texts of choice 0."""
        self.feed([Text(0, text) for text in texts])

    def message(self) -> bytes:
        """The reply as JSON."""
        raise NotImplementedError

    def _take(self, event: Event) -> None:
        raise NotImplementedError


class StreamEncoder(EventEncoder):
    """Chat completion chunks. Thoughts go where the head's `reasoning` says."""

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._open = b"data: " + _prefix(head, "chat.completion.chunk") + b',"choices":['
        self._content = self._open + _CONTENT
        self._tokens: list[TokenLogprob] | None = None  # of the text that comes next
        self._begun: set[int] = set()

    def texts(self, texts: Sequence[str]) -> bytes:
        """Plain texts of choice 0: what `feed` would give, the short way."""
        if not self._begun or self._inliner.is_on:
            return super().texts(texts)
        said = _json(texts[0]) if len(texts) == 1 else (_CONTENT_END + self._content).join(map(_json, texts))
        return self._content + said + _CONTENT_END

    def _encode(self, event: Event, out: list[bytes]) -> None:
        if type(event) is Text and event.choice == 0 and self._tokens is None:
            if 0 not in self._begun:
                self._begin(0, out)
            out.append(self._content + _json(event.text) + _CONTENT_END)
        elif type(event) is Done:
            if self._head.include_usage and self._usage is not None:
                out.append(b'%b],"usage":%b}\n\n' % (self._open, _json(self._usage.counts)))
            out.append(DONE)
        elif type(event) is Logprobs:
            self._tokens = event.tokens
        elif type(event) is Finish:
            self._emit(event.choice, {}, out, finish_reason=event.reason)
        elif delta := _delta(event, self._head.reasoning):
            assert isinstance(event, Text | Thought | CallStart | CallArguments)
            self._emit(event.choice, delta, out, logprobs=_logprobs(self._tokens))

    def _emit(self, choice: int, delta: dict[str, Any], out: list[bytes], **more: Any) -> None:
        if choice not in self._begun:
            self._begin(choice, out)  # the role comes first
        self._tokens = None
        out.append(self._open + _json(_choice(choice, "delta", delta, **more)) + b"]}\n\n")

    def _begin(self, choice: int, out: list[bytes]) -> None:
        self._begun.add(choice)
        first = _choice(choice, "delta", {"role": "assistant", "content": ""})
        out.append(self._open + _json(first) + b"]}\n\n")


def _logprobs(tokens: list[TokenLogprob] | None) -> dict[str, Any] | None:
    """As OpenAI's API has them; None: there are none."""
    return {"content": tokens, "refusal": None} if tokens else None


class MessageCollector(EventCollector):
    """One chat completion. For callers that do not stream."""

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._parts: dict[str, list[str]] = {"content": []}
        self._calls: list[tuple[dict[str, Any], list[str]]] = []  # and the fragments of their arguments
        self._tokens: list[TokenLogprob] = []
        self.broken: Broken | None = None

    def texts(self, texts: Sequence[str]) -> None:
        """Take plain texts of choice 0, the short way."""
        if self._inliner.is_on:
            super().texts(texts)
        else:
            self._parts["content"].extend(texts)

    def _take(self, event: Event) -> None:
        if type(event) is Logprobs:
            self._tokens = [*self._tokens, *event.tokens] if event.tokens else []
        elif type(event) is Broken:
            self.broken = event
        for name, said in _delta(event, self._head.reasoning).items():
            if name == "tool_calls":
                (call,) = said
                if "id" in call:
                    self._calls.append((call, []))
                self._calls[call.pop("index")][1].append(call["function"]["arguments"])
            else:
                self._parts.setdefault(name, []).append(said)

    def message(self) -> bytes:
        """The chat completion as JSON."""
        message: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}
        message |= {name: "".join(parts) for name, parts in self._parts.items()}
        for call, fragments in self._calls:
            call["function"]["arguments"] = "".join(fragments)
        if self._calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = [call for call, _ in self._calls]
        reason = None if self._finish is None else self._finish.reason
        choice = _choice(0, "message", message, logprobs=_logprobs(self._tokens), finish_reason=reason)
        reply = {"choices": [choice], "usage": self._usage.counts if self._usage else None}
        return _prefix(self._head, "chat.completion") + b"," + _json(reply)[1:]
