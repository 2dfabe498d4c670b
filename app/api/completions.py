"""`POST /v1/completions`, OpenAI's older API: a prompt is continued, without template or tools. Pure.

No chat template is applied that could switch thinking off, so thoughts are removed as in chat: those in
tags always, and text before a closing tag that was never opened as long as it is held back.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from pydantic import Field

from app.api.chat_request import MAX_INT, MAX_STOPS, ChatRequest, Message, StreamOptions
from app.api.engine_request import NOTHING_TRIED
from app.api.reading import REFS, Read, read, unsupported
from app.api.surface import COMMENT, Collector, Encoder, ParsedRequest
from app.stream.encode import DONE, Inliner, ReplyHead, error_frame
from app.stream.events import Broken, Done, Event, Finish, Text, Usage
from app.stream.holdback import UNBOUNDED, ThinkPolicy
from app.stream.pipeline import StreamPolicy
from deploy.engine.abilities import Abilities
from deploy.engine.dialects import DIALECTS, Thinking
from deploy.engine.spec import Dialect

_FIELDS = frozenset(
    {
        "prompt", "stop", "seed", "temperature", "top_p", "presence_penalty", "frequency_penalty",
        "logit_bias", "max_tokens", "user",
    }
)  # fmt: skip
_OURS = frozenset({"model", "stream", "stream_options", "n", "echo", "best_of", "logprobs", "suffix"})
_json = msgspec.json.Encoder().encode


class CompletionRequest(Read):
    """`POST /v1/completions`, checked. The prompt is one: a text, or the numbers of its tokens."""

    model: str
    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=1, fail_fast=True)]
        | Annotated[list[int], Field(min_length=1, fail_fast=True)]
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    best_of: Annotated[int, Field(ge=1, le=1)] | None = None
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_INT)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None


class Completions:
    """The surface of continued prompts."""

    path = engine_path = "/v1/completions"
    id_prefix = "cmpl-"
    keepalive = COMMENT

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        """The request; what would need the model's raw text is refused."""
        asked = read(CompletionRequest, raw)
        for name, value in (("echo", asked.echo), ("logprobs", asked.logprobs), ("suffix", asked.suffix)):
            if value:
                raise unsupported(name, f"{name} is not served: the text is filtered; leave it out")
        if asked.stream_options is not None and not asked.stream:
            raise unsupported("stream_options", "stream_options needs stream: true")
        body = asked.model_dump(exclude_none=True)
        if isinstance(asked.prompt, list) and isinstance(asked.prompt[0], str):
            body["prompt"] = asked.prompt[0]
        return ParsedRequest(stand_in(asked.model, asked.stream, asked.stream_options), body)

    def ignored(self, asked: ParsedRequest, dialect: Dialect) -> list[str]:
        """What the dialect does not take."""
        return sorted(asked.body.keys() - _OURS - _FIELDS - DIALECTS[dialect].fields)

    def policy(
        self,
        asked: ParsedRequest,
        dialect: Dialect,
        thinking: Thinking,
        guard: int,
        id_prefix: str,
        abilities: Abilities = NOTHING_TRIED,
    ) -> StreamPolicy:
        """A prompt may have anything behind it, so a stream is never held longer than the guard."""
        guard = guard if asked.chat.stream else UNBOUNDED
        return StreamPolicy(ThinkPolicy(thinking != 0, guard, after=guard), None, id_prefix)

    def engine_body(
        self,
        asked: ParsedRequest,
        dialect: Dialect,
        served_name: str,
        thinking: Thinking,
        metered: bool = False,
        abilities: Abilities = NOTHING_TRIED,
    ) -> bytes:
        """Allowed fields only, always streamed, usage always asked for."""
        allowed = _FIELDS | DIALECTS[dialect].fields
        sent = {name: value for name, value in asked.body.items() if name in allowed}
        options = {"include_usage": True}
        return _json({**sent, "model": served_name, "stream": True, "stream_options": options})

    def hinted(self, asked: ParsedRequest, hint: str) -> ParsedRequest | None:
        """The line goes before the prompt, if that is a text."""
        prompt = asked.body["prompt"]
        if not isinstance(prompt, str):
            return None
        return replace(asked, body={**asked.body, "prompt": f"{hint}\n\n{prompt}"})

    def encoder(self, head: ReplyHead, asked: ParsedRequest) -> Encoder:
        """text_completion frames."""
        return CompletionEncoder(head)

    def collector(self, head: ReplyHead, asked: ParsedRequest) -> Collector:
        """One text_completion."""
        return CompletionCollector(head)

    def schema(self) -> dict[str, Any]:
        """The request's JSON Schema."""
        return CompletionRequest.model_json_schema(ref_template=REFS)


def stand_in(model: str, stream: bool | None = None, options: StreamOptions | None = None) -> ChatRequest:
    """What the core reads of a request that is no chat; its message goes nowhere."""
    nothing = [Message(role="user", content="")]
    return ChatRequest(model=model, messages=nothing, stream=stream, stream_options=options)


def _completion(head: ReplyHead, text: str, finish: Finish | None) -> dict[str, Any]:
    reason = None if finish is None else finish.reason
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    shared = {"id": head.id, "object": "text_completion", "created": head.created, "model": head.model}
    return {**shared, "choices": [choice]}


def _frame(payload: dict[str, Any]) -> bytes:
    return b"data: " + _json(payload) + b"\n\n"


class CompletionEncoder:
    """`feed` events, get SSE bytes. This API has no field for thoughts: only inline ones are shown."""

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._usage: Usage | None = None
        self._inliner = Inliner(head.reasoning)

    def feed(self, events: Sequence[Event]) -> bytes:
        """The bytes these events are on the wire; b"" when the caller is to see nothing."""
        return b"".join([self._encode(event) for event in self._inliner.feed(events)])

    def texts(self, texts: Sequence[str]) -> bytes:
        """Plain texts of choice 0."""
        return self.feed([Text(0, text) for text in texts])

    def fault(self, message: str, code: str, kind: str) -> bytes:
        """OpenAI's error frame."""
        return error_frame(message, code, kind)

    def _encode(self, event: Event) -> bytes:
        if type(event) is Text:
            return _frame(_completion(self._head, event.text, None))
        if type(event) is Finish:
            return _frame(_completion(self._head, "", event))
        if type(event) is Broken:
            return error_frame(event.message, event.code)
        if type(event) is Usage:
            self._usage = event
        return self._end() if type(event) is Done else b""

    def _end(self) -> bytes:
        if not self._head.include_usage or self._usage is None:
            return DONE
        counted = {**_completion(self._head, "", None), "choices": [], "usage": self._usage.counts}
        return _frame(counted) + DONE


class CompletionCollector:
    """`feed` events, then take the completion."""

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._text: list[str] = []
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        self._inliner = Inliner(head.reasoning)

    def texts(self, texts: Sequence[str]) -> None:
        """Take plain texts of choice 0."""
        self.feed([Text(0, text) for text in texts])

    def feed(self, events: Sequence[Event]) -> None:
        """Take events in order."""
        for event in self._inliner.feed(events):
            if type(event) is Text:
                self._text.append(event.text)
            elif type(event) is Finish:
                self._finish = event
            elif type(event) is Usage:
                self._usage = event

    def message(self) -> bytes:
        """The completion as JSON."""
        usage = self._usage.counts if self._usage else None
        return _json({**_completion(self._head, "".join(self._text), self._finish), "usage": usage})
