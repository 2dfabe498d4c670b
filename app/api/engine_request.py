"""From a caller's request to an engine's, and to what the stream core may assume of the reply. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.api.chat_request import ChatRequest
from app.api.tool_choice import is_guided, tool_fields
from app.stream.holdback import UNBOUNDED, ThinkPolicy
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import StreamPolicy
from app.stream.schema import Tools
from deploy.engine.abilities import Abilities
from deploy.engine.dialect import Thinking
from deploy.engine.dialects import COMMON_FIELDS, DIALECTS, FORCING_FIELDS
from gates.contracts.dialect import Dialect

DEFAULT_ROOM = 1024
"""Tokens for an answer after an ended thought, if neither the request nor the engine states a limit."""


class AskedEngine(msgspec.Struct, frozen=True):
    """The engine that is asked, and how: what a request and its reply depend on beside the caller's body.

    thinking: the switch or budget that it is sent. metered: it must report its token count while it generates. guard:
    characters of a streamed reply held back at its start, and after a thought. counted: it should report its token count
    while it generates, where that is cheap.
    """

    dialect: Dialect
    served_name: str = ""
    abilities: Abilities = Abilities()
    thinking: Thinking = 0
    metered: bool = False
    guard: int = 0
    counted: bool = False


_AS_THEY_ARE: Mapping[Dialect, frozenset[str]] = {
    name: (COMMON_FIELDS | spec.fields) - {"tools", "tool_choice", "parallel_tool_calls"}
    for name, spec in DIALECTS.items()
}
"""A chat's fields that an engine is sent unchanged."""


def thinking_for(request: ChatRequest, default: Thinking, dialect: Dialect, abilities: Abilities) -> Thinking:
    """The thinking that the engine is asked for: none before a guided call, for the schema would constrain the thought, too."""
    return 0 if is_guided(request.choice, dialect, abilities) else request.thinking_or(default)


def upstream_body(request: ChatRequest, body: dict[str, Any], engine: AskedEngine) -> bytes:
    """The JSON for the engine."""
    spec = DIALECTS[engine.dialect]
    more = tool_fields(request.choice, body, engine.dialect, engine.abilities)
    more.update(spec.thinking(engine.thinking))
    if request.is_begun:
        more.update(spec.prefill)
    if engine.metered:
        more.update(spec.metered)
    if engine.counted:
        more.update(spec.counted)
    return streamed(body, _AS_THEY_ARE[engine.dialect], engine, **more)


def streamed(body: Mapping[str, Any], allowed: frozenset[str], engine: AskedEngine, **more: Any) -> bytes:
    """The allowed fields and more as JSON for the engine: always streamed, usage always asked for.

    A reply that the caller wants whole is streamed, too: a caller who disconnects then stops the engine at once, and the
    engine's second parser, for whole replies, is not used.
    """
    sent = {key: value for key, value in body.items() if key in allowed and value is not None}
    always = {"model": engine.served_name, "stream": True, "stream_options": {"include_usage": True}}
    return msgspec.json.encode(sent | more | always)


CONTINUED: Mapping[Dialect, frozenset[str]] = {
    name: fields - {"messages", "max_completion_tokens", "top_logprobs"}
    for name, fields in _AS_THEY_ARE.items()
}
"""Those that go with a prompt, too."""


def answer_body(
    request: ChatRequest, body: dict[str, Any], engine: AskedEngine, meter: ThoughtMeter
) -> bytes:
    """The JSON that makes an engine answer after a thought that the gateway ended: `/v1/completions`.

    It continues from token ids, so that prompt and thought are exactly in its prefix cache. The template would drop raw tags
    in a chat's last turn (docs/wire.md).
    """
    abilities = engine.abilities
    prompt = [*meter.prompt, *meter.tokens, *abilities.closing]
    room = [] if abilities.context is None else [abilities.context - len(prompt)]
    if request.most is not None:
        room.append(request.most - len(meter.tokens))
    most = max(min(room, default=DEFAULT_ROOM), 1)  # without a limit vLLM makes 16 tokens
    more: dict[str, Any] = {"prompt": prompt, "max_tokens": most}
    if request.uses_tools:
        more["skip_special_tokens"] = False  # the tags of a call may be special tokens
    if request.logprobs:
        more["logprobs"] = request.top_logprobs or 0  # a truth in chat, a number here
    return streamed(body, CONTINUED[engine.dialect] - {"logprobs"}, engine, **more)


def is_forced(request: ChatRequest, body: Mapping[str, Any]) -> bool:
    """Whether the request determines words of its reply: guided decoding, a begun answer, stop words, a raw prompt.

    Such a reply is no evidence about an engine.
    """
    return (
        "prompt" in body
        or request.messages[-1].role == "assistant"
        or request.choice.mode == "required"
        or wants_json(request.response_format)
        or (not FORCING_FIELDS.isdisjoint(body) and any(map(body.get, FORCING_FIELDS)))
    )


def stream_policy(request: ChatRequest, engine: AskedEngine, id_prefix: str) -> StreamPolicy:
    """What the stream core may assume of the reply.

    A whole reply loses no latency by being held, so a missing opening tag is always found. With thinking on, the stream of
    an engine that may leave thoughts in the text is held until a tag comes.
    """
    spec, guard, thinks = DIALECTS[engine.dialect], engine.guard, engine.thinking != 0
    opened = thinks and not spec.separates
    after = guard if thinks else None
    if not request.stream:
        guard, after = UNBOUNDED, UNBOUNDED
    elif opened:
        guard = UNBOUNDED
    is_forced = is_guided(request.choice, engine.dialect, engine.abilities)
    shown = [tool.function for tool in request.tools or () if request.choice.shows(tool.function.name)]
    declared = Tools([{"function": {"name": f.name, "parameters": f.parameters}} for f in shown])
    tools = declared if request.uses_tools and not is_forced else None
    think = ThinkPolicy(thinks, guard, spec.reasoning_is_answer, after, opened)
    is_json = is_forced or wants_json(request.response_format)
    return StreamPolicy(think, tools, id_prefix, most=request.most, json=is_json)


def wants_json(form: Mapping[str, Any] | None) -> bool:
    """Whether a reply of this form is JSON: a JSON object is then the answer, not a tool call."""
    return form is not None and form.get("type") not in (None, "text")


def answer_policy(policy: StreamPolicy) -> StreamPolicy:
    """What the stream core may assume of an answer after an ended thought: it begins at once."""
    held = policy.think.held_after
    think = ThinkPolicy(thinking=True, guard=held, after=held)
    return msgspec.structs.replace(policy, think=think, closer=None, most=None, room=None)
