"""The interface of an API surface: one proxy serves every API over the same stream core. Pure.

A surface translates a request into a chat completion, and the core's events into its API's format. The proxy does the
rest alike for all APIs: limits, clocks, admission, failover, keys, errors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from app.api.chat_request import ChatRequest, call_of, check_chat
from app.api.engine_request import AskedEngine, stream_policy, upstream_body
from app.api.items import Collector
from app.api.reading import UNSERVED, Part, Request, checked, json_object, present, refuse_unserved
from app.stream.encode import EventEncoder, ReplyHead, StreamEncoder, choice_of, logprobs_of, prefix
from app.stream.pipeline import StreamPolicy
from deploy.engine.dialects import COMMON_FIELDS, DIALECTS
from gates.contracts.dialect import Dialect
from gates.reply.events import Usage

_OF_DIALECTS = frozenset[str]().union(*(spec.fields for spec in DIALECTS.values()))
_READ = COMMON_FIELDS | UNSERVED | (ChatRequest.model_fields.keys() - _OF_DIALECTS)


class ParsedRequest(msgspec.Struct, frozen=True):
    """A checked request. `chat` is what the core reads, `body` what an engine may be sent of it."""

    chat: ChatRequest
    body: dict[str, Any]
    ignored: tuple[str, ...] = ()  # fields of the caller's that go nowhere, whatever the engine
    echo: dict[str, Any] = msgspec.field(default_factory=dict)  # what the reply repeats of the request
    logprobs: bool = False  # it asks for those of the tokens that go out
    count: int = 1  # choices that it asks for, of all its prompts
    prompts: tuple[Any, ...] = ()  # of a request that has several

    def choice(self, index: int) -> "ParsedRequest":
        """The request for one of its choices. As in vLLM, `seed` counts up, or all would be the same."""
        body, each = dict(self.body), self.count // max(len(self.prompts), 1)
        if self.prompts:
            body["prompt"] = self.prompts[index // each]
        if type(seed := body.get("seed")) is int:
            body["seed"] = seed + index % each
        return replace(self, body=body, count=1, prompts=())


class ForeignRequest(Request):
    """A request in another API's words than chat's."""

    def chat(self) -> dict[str, Any]:
        """The other fields of the chat completion that it asks for. Raises BadField for one that is not served."""
        raise NotImplementedError


class Surface:
    """One API, whose requests are chat completions at the engine unless it says otherwise.

    encoder: of a reply for a caller who streams. collector: for one who wants it whole.
    """

    path: str
    engine_path = "/v1/chat/completions"
    is_chat = True
    id_prefix: str
    request: type[Part]
    encoder: Callable[[ReplyHead], EventEncoder]
    collector: Callable[[ReplyHead], Collector]

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        """The checked request. Raises RequestError."""
        raise NotImplementedError

    def unknown(self, names: set[str], dialect: Dialect) -> set[str]:
        """The fields that the gateway neither reads nor refuses, and that no engine of the dialect takes."""
        return names - _READ - DIALECTS[dialect].fields

    def ignored(self, asked: ParsedRequest, dialect: Dialect) -> list[str]:
        """Names of the fields that go nowhere: what the dialect does not take, and what this surface has no word for."""
        given = {name for name, value in asked.body.items() if value is not None}
        return sorted(self.unknown(given, dialect).union(asked.ignored))

    def policy(self, asked: ParsedRequest, engine: AskedEngine, id_prefix: str) -> StreamPolicy:
        """What the stream core may assume of the reply."""
        return stream_policy(asked.chat, engine, id_prefix)

    def engine_body(self, asked: ParsedRequest, engine: AskedEngine) -> bytes:
        """The JSON for the engine."""
        return upstream_body(asked.chat, asked.body, engine)


class Translated(Surface):
    """A surface in another API's words. `echoed`: fields that a reply repeats, and what it says where the request has none."""

    request: type[ForeignRequest]
    turns = "messages"  # its field of the conversation
    echoed: Mapping[str, Any] = {}

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        given = json_object(raw, self.turns, max_messages)
        asked = checked(self.request, given)
        refuse_unserved(asked.extra)
        same = {name: getattr(asked, name) for name in Request.model_fields}
        body = present({**same, **asked.chat()})
        echo = {**self.echoed, **present({name: given.get(name) for name in self.echoed})}
        return ParsedRequest(check_chat(body), body, tuple(asked.extra.keys() - UNSERVED), echo)


class MessageCollector(Collector):
    def message(self) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": self.said("text"), "refusal": None}
        if thought := self.said("thought"):
            message["reasoning_content"] = thought
        if calls := [call_of(it.call.id, it.call.name, it.text) for it in self.items if it.call is not None]:
            message |= {"content": message["content"] or None, "tool_calls": calls}
        reason = None if self.finish is None else self.finish.reason
        choice = choice_of(0, "message", message, logprobs=logprobs_of(self.tokens), finish_reason=reason)
        reply = {"choices": [choice], "usage": self._usage.counts if self._usage else None}
        return prefix(self._head, "chat.completion") + b"," + msgspec.json.encode(reply)[1:]


class ChatCompletions(Surface):
    """`POST /v1/chat/completions`, OpenAI's: the format that the stream core itself works in."""

    path = "/v1/chat/completions"
    id_prefix = "chatcmpl-"
    request = ChatRequest
    encoder, collector = StreamEncoder, MessageCollector

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        body = json_object(raw, "messages", max_messages)
        chat = check_chat(body)
        return ParsedRequest(chat, body, logprobs=bool(chat.logprobs), count=chat.n or 1)


class Counts(msgspec.Struct, frozen=True):
    """Token counts of a reply, for APIs that name them otherwise than the engine."""

    given: int = 0
    made: int = 0
    cached: int = 0
    thought: int = 0

    @classmethod
    def of(cls, usage: Usage | None) -> "Counts":
        """Zeros where the engine counted nothing; a part is never more than the whole."""
        if usage is None:
            return cls()
        given, made = usage.tokens("prompt_tokens"), usage.tokens("completion_tokens")
        cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
        thought = _detail(usage, "completion_tokens_details", "reasoning_tokens")
        return cls(given, made, min(cached, given), min(thought, made))


def _detail(usage: Usage, group: str, name: str) -> int:
    details = usage.counts.get(group)
    return Usage(details).tokens(name) if isinstance(details, dict) else 0


def joined_message(messages: Sequence[bytes], usage: Usage | None) -> bytes:
    """One reply of many with one choice each, numbered in their order."""
    replies = [msgspec.json.decode(message) for message in messages]
    choices = [{**reply["choices"][0], "index": index} for index, reply in enumerate(replies)]
    counts = None if usage is None else usage.counts
    return msgspec.json.encode({**replies[0], "choices": choices, "usage": counts})


def joined_usage(usages: Sequence[Usage | None], per_prompt: int) -> Usage | None:
    """The tokens of all choices; a prompt that `per_prompt` choices share counts once, as at OpenAI's.

    None: the engine did not count all of them.
    """
    counted = [Counts.of(usage) for usage in usages if usage is not None]
    if not counted or len(counted) < len(usages):
        return None
    prompts = counted[::per_prompt]
    given, cached = sum(one.given for one in prompts), sum(one.cached for one in prompts)
    made, thought = sum(one.made for one in counted), sum(one.thought for one in counted)
    counts = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    read = {"prompt_tokens_details": {"cached_tokens": cached}}
    return Usage({**counts, **read, "completion_tokens_details": {"reasoning_tokens": thought}})
