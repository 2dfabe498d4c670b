"""`POST /v1/completions`, OpenAI's older API: a prompt is continued, without template or tools. Pure.

No chat template is applied that could switch thinking off, so thoughts are removed as in chat: those in
tags always, and text before a closing tag that was never opened as long as it is held back.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import Field

from app.api.chat_request import ChatRequest, ChoiceCount, Message, StreamOptions
from app.api.engine_request import CONTINUED, AskedEngine, streamed
from app.api.items import Collector
from app.api.reading import UNSERVED, Request, Some, Stops, TokenLimit, checked, json_object, refuse_unserved
from app.api.surface import ParsedRequest, Surface
from app.errors.tree import BadField
from app.stream.encode import DONE, EventEncoder, ReplyHead
from app.stream.holdback import UNBOUNDED, ThinkPolicy
from app.stream.pipeline import StreamPolicy
from gates.contracts.dialect import Dialect
from gates.reply.events import Done, Event, Finish, Logprobs, Text, TokenLogprob

_json = msgspec.json.encode
MAX_CHOICES = 32  # of all prompts of one request together

Tokens = Some[int]
"""A text, as the numbers of its tokens."""
Prompt = TypeVar("Prompt", str, Tokens)
_Several = Annotated[list[Prompt], Field(min_length=1, max_length=16, fail_fast=True)]


class CompletionRequest(Request):
    """`POST /v1/completions`, checked. A prompt is a text, or the numbers of its tokens; there may be several."""

    prompt: str | Tokens | _Several[str] | _Several[Tokens]
    stream_options: StreamOptions | None = None
    n: ChoiceCount | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    stop: str | Stops | None = None
    max_tokens: TokenLimit | None = None


def stand_in(model: str, **fields: Any) -> ChatRequest:
    """A chat request for the core, which reads its fields; its message is not used."""
    return ChatRequest(model=model, messages=[Message(role="user", content="")], **fields)


def _completion(
    head: ReplyHead, text: str, finish: Finish | None, index: int = 0, tokens: Sequence[TokenLogprob] = ()
) -> dict[str, Any]:
    reason = None if finish is None else finish.reason
    choice = {"index": index, "text": text, "logprobs": _logprobs(tokens), "finish_reason": reason}
    shared = {"id": head.id, "object": "text_completion", "created": head.created, "model": head.model}
    return {**shared, "choices": [choice]}


def _logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, list[Any]] | None:
    """This API's form. None: there are none."""
    if not tokens:
        return None
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{one.token: one.logprob for one in token.top_logprobs} for token in tokens],
    }


def _frame(payload: dict[str, Any]) -> bytes:
    return b"data: " + _json(payload) + b"\n\n"


class CompletionEncoder(EventEncoder):
    """This API has no field for thoughts: only inline ones are shown."""

    _tokens: Sequence[TokenLogprob] = ()  # of the text that comes next

    def _encode(self, event: Event, out: list[bytes]) -> None:
        if type(event) is Text:
            tokens, self._tokens = self._tokens, ()
            out.append(_frame(_completion(self._head, event.text, None, event.choice, tokens)))
        elif type(event) is Finish:
            out.append(_frame(_completion(self._head, "", event, event.choice)))
        elif type(event) is Logprobs:
            self._tokens = event.tokens
        elif type(event) is Done:
            if self._head.include_usage and self._usage is not None:
                said = _completion(self._head, "", None)
                out.append(_frame({**said, "choices": [], "usage": self._usage.counts}))
            out.append(DONE)


class CompletionCollector(Collector):
    def message(self) -> bytes:
        said = _completion(self._head, self.said("text"), self.finish, tokens=self.tokens)
        return _json({**said, "usage": self._usage.counts if self._usage else None})


class Completions(Surface):
    path = engine_path = "/v1/completions"
    is_chat = False
    id_prefix = "cmpl-"
    request = CompletionRequest
    encoder, collector = CompletionEncoder, CompletionCollector

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        asked = checked(CompletionRequest, json_object(raw))
        refuse_unserved(asked.extra)
        body, given = asked.model_dump(exclude_none=True), asked.prompt
        prompts = (given,) if isinstance(given, str) or isinstance(given[0], int) else tuple(given)
        count = len(prompts) * (asked.n or 1)
        if count > MAX_CHOICES:
            message = f"at most {MAX_CHOICES} choices a request: {len(prompts)} prompts make {count}"
            raise BadField(message, "too_many_choices", param="n")
        body["prompt"] = prompts[0]
        chat = stand_in(**asked.model_dump(include={"model", "stream", "stream_options", "max_tokens"}))
        return ParsedRequest(chat, body, logprobs=asked.logprobs is not None, count=count, prompts=prompts)

    def unknown(self, names: set[str], dialect: Dialect) -> set[str]:
        return names - CONTINUED[dialect] - UNSERVED - CompletionRequest.model_fields.keys()

    def policy(self, asked: ParsedRequest, engine: AskedEngine, id_prefix: str) -> StreamPolicy:
        """The continuation of a prompt may be anything, so a stream is held no longer than the guard."""
        guard = engine.guard if asked.chat.stream else UNBOUNDED
        return StreamPolicy(ThinkPolicy(engine.thinking != 0, guard, after=guard), None, id_prefix)

    def engine_body(self, asked: ParsedRequest, engine: AskedEngine) -> bytes:
        return streamed(asked.body, CONTINUED[engine.dialect] | {"prompt"}, engine)
