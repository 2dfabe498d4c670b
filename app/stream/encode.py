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


def prefix(head: ReplyHead, object_name: str) -> bytes:
    """What a reply says of itself, in each chunk and in a whole one."""
    shared = {"id": head.id, "object": object_name, "created": head.created, "model": head.model}
    return _json(shared)[:-1]


def choice_of(index: int, part: str, said: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A choice as JSON: `said` is the delta of a chunk or the message of a whole reply, as `part` names it."""
    return {"index": index, part: said, "logprobs": None, "finish_reason": None, **more}


_CONTENT, _CONTENT_END = (_json(choice_of(0, "delta", {"content": ""})) + b"]}\n\n").split(b'""', 1)


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


class StreamEncoder(EventEncoder):
    """Chat completion chunks. Thoughts go where the head's `reasoning` says."""

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._open = b"data: " + prefix(head, "chat.completion.chunk") + b',"choices":['
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
        elif type(event) is Text:
            self._emit(event.choice, {"content": event.text}, out, logprobs=logprobs_of(self._tokens))
        elif type(event) is Thought:
            if self._head.reasoning == "separate" and event.text:
                self._emit(event.choice, {"reasoning_content": event.text}, out)
        elif type(event) is CallStart:
            function = {"name": event.name, "arguments": ""}
            call = {"index": event.index, "id": event.id, "type": "function", "function": function}
            self._emit(event.choice, {"tool_calls": [call]}, out)
        elif type(event) is CallArguments:
            call = {"index": event.index, "function": {"arguments": event.fragment}}
            self._emit(event.choice, {"tool_calls": [call]}, out)

    def _emit(self, choice: int, delta: dict[str, Any], out: list[bytes], **more: Any) -> None:
        if choice not in self._begun:
            self._begin(choice, out)  # the role comes first
        self._tokens = None
        out.append(self._open + _json(choice_of(choice, "delta", delta, **more)) + b"]}\n\n")

    def _begin(self, choice: int, out: list[bytes]) -> None:
        self._begun.add(choice)
        first = choice_of(choice, "delta", {"role": "assistant", "content": ""})
        out.append(self._open + _json(first) + b"]}\n\n")


def logprobs_of(tokens: list[TokenLogprob] | None) -> dict[str, Any] | None:
    """As OpenAI's API has them; None: there are none."""
    return {"content": tokens, "refusal": None} if tokens else None
