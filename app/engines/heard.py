"""A recorded reply of an engine as a caller of the gateway hears it: read by the gateway's own stream core. Pure.

The gate judges such replies, the promotion's canary listens to them, and the shadow compares them. This module asks
no engine: a second request of the gateway (with a hint, or for a guided call) is not simulated.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from app.api.chat_request import ChatRequest
from app.api.engine_request import AskedEngine, stream_policy, thinking_for
from app.api.surface import ChatCompletions
from app.api.tool_choice import enforcer_for, is_guided, other_means
from app.config.config import ModelConfig
from app.errors.tree import RequestError
from app.stream.encode import ReplyHead, error_frame
from app.stream.holdback import FILTERED
from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.thinking_control import held_characters, thinking_control
from deploy.engine.abilities import Abilities
from gates.contracts.dialect import Dialect
from gates.contracts.sample import TimedRead
from gates.reply.events import Broken, Done, Event, Finish, Text
from gates.run.request import encode_body
from gates.run.target import Hearing

_CHAT: Final = ChatCompletions()


def settings(model: ModelConfig) -> dict[str, str]:
    """The keys of `[models.NAME]` that decide what a caller hears of a reply, as a report states them."""
    keys = ("reasoning", "speech", "unasked_calls", "thought_guard", "when_nothing_is_left")
    return {key: str(getattr(model, key)) for key in keys}


def hearing(model: ModelConfig, dialect: Dialect, abilities: Abilities) -> Hearing:
    """The function that turns an engine's recorded reply into the one that callers of `model` hear once a report has passed."""
    control = thinking_control(abilities, gated=True, violated=abilities.off_works is False)
    guard = held_characters(model.thought_guard, control)

    def heard(request: Mapping[str, Any], reads: Sequence[TimedRead]) -> bytes:
        try:
            chat = _CHAT.parse(encode_body(request), len(request["messages"])).chat
        except RequestError as error:
            return error_frame(error.message, error.code)
        # The recorded reply was not guided by a schema, so it is read in the other way.
        means = other_means(abilities) if is_guided(chat.choice, dialect, abilities) else abilities
        thinking = thinking_for(chat, model.default_thinking, dialect, means)
        asked = AskedEngine(dialect, "", means, thinking, guard=guard)
        policy = for_model(stream_policy(chat, asked, ""), model, means)
        # Thoughts in a field of their own are not speech.
        reasoning = "strip" if model.reasoning == "separate" else model.reasoning
        encoder = _CHAT.encoder(ReplyHead("", 0, "", reasoning))
        found = replayed(chat, asked, policy, reads)
        if (sentence := model.when_nothing_is_left) and not policy.json:
            found = (_with_sentence(events, sentence) for events in found)
        return b"".join(map(encoder.feed, found))

    return heard


def for_model(
    policy: StreamPolicy,
    model: ModelConfig,
    abilities: Abilities,
    *,
    closer: int | None = None,
    plain: bool = True,
) -> StreamPolicy:
    """A request's policy with what a model's configuration and its engine add."""
    return replace(
        policy,
        closer=closer,
        room=abilities.context,
        unasked=model.unasked_calls,
        plain=plain and model.speech == "plain",
        format=abilities.format,
    )


def replayed(
    chat: ChatRequest, asked: AskedEngine, policy: StreamPolicy, reads: Sequence[TimedRead]
) -> Iterator[Sequence[Event]]:
    """The events of a recorded body, streamed or whole, that keep the request's `tool_choice`."""
    keeper = enforcer_for(chat.choice, asked.dialect, asked.abilities)
    for events in _read(Pipeline(policy), reads):
        yield events if keeper is None else keeper.feed(events)


def _read(pipeline: Pipeline, reads: Sequence[TimedRead]) -> Iterator[list[Event]]:
    if reads and reads[0].data.lstrip().startswith(b"{"):  # it did not stream
        yield pipeline.feed_message(b"".join(read.data for read in reads))
        return
    for read in reads:
        yield pipeline.feed(read.data)
    if not pipeline.over:
        yield pipeline.close()


def _with_sentence(events: Sequence[Event], sentence: str) -> Sequence[Event]:
    """The model's sentence in place of a reply of which nothing is left."""
    last = events[-1] if events else None
    if type(last) is Broken and last.code == FILTERED and not last.by_engine:
        return [*events[:-1], Text(0, sentence), Finish(0, "stop"), Done()]
    return events
