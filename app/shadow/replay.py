"""Turns records into requests, and raw replies into calls and breaches with the gateway's own stream core. Pure.

Requests are those that the gateway would send, at temperature 0. Replies are stored raw (`gates.run`), so that
they can be parsed again later.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api.chat_request import ChatRequest, check_chat
from app.api.engine_request import AskedEngine, stream_policy, thinking_for, upstream_body
from app.engines.heard import replayed
from app.errors.tree import RequestError
from app.shadow.record import SCHEMA, RecordedCall, ShadowRecord
from app.stream.audit import ReplyAudit
from deploy.engine.abilities import Abilities
from gates.contracts.sample import Sample, SampleKey
from gates.reply.events import Broken
from gates.run.request import PlannedRequest, body_digest
from gates.run.target import Target

SUITE: Final = f"sha256:{hashlib.sha256(SCHEMA.encode()).hexdigest()}"
"""Takes the place of the suite's digest in the samples' keys; every record is its own case."""
LONGEST_ANSWER: Final = 1024
"""max_tokens where a request has none, because a candidate may repeat itself endlessly."""
_MOST_MESSAGES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ReplayEngine:
    """A running engine. `guard` is how many characters at the start of a reply are held back."""

    name: str
    target: Target
    abilities: Abilities = Abilities()
    guard: int = 0


@dataclass(frozen=True, slots=True)
class ReplayedReply:
    """A reply as a caller would have received it.

    `breaches` are the names of `ReplyAudit.breaches`, and `error` if the engine failed the request.
    `lost`: the connection failed, which says nothing about the engine.
    """

    calls: tuple[RecordedCall, ...] = ()
    breaches: frozenset[str] = frozenset()
    lost: bool = False


def requests_for(
    records: Iterable[ShadowRecord], engines: Sequence[ReplayEngine]
) -> list[tuple[ShadowRecord, tuple[PlannedRequest, ...]]]:
    """The records that are valid requests and that all engines support, each with one request per engine."""
    return [
        (record, tuple(_request_for(record, chat, engine) for engine in engines))
        for record in records
        if (chat := _chat(record)) is not None
        and not (chat.is_begun and any(engine.abilities.continues is False for engine in engines))
    ]


def _request_for(record: ShadowRecord, chat: ChatRequest, engine: ReplayEngine) -> PlannedRequest:
    target = engine.target
    sent = json.loads(upstream_body(chat, _body(record), _asked(record, chat, engine)))
    digest = body_digest(sent)
    key = SampleKey(SUITE, target.artefact, target.engine, digest, engine.name, record.id, 0, "stream")
    return PlannedRequest(key, sent)


def read_reply(record: ShadowRecord, sample: Sample, engine: ReplayEngine) -> ReplayedReply:
    """Parse a raw reply."""
    if sample.fault is not None:
        return ReplayedReply(lost=True)
    chat = _chat(record)
    if sample.status != 200 or chat is None:
        return ReplayedReply(breaches=frozenset({"error"}))
    asked = _asked(record, chat, engine)
    audit, is_broken = ReplyAudit(asked.thinking != 0), False
    for batch in replayed(chat, asked, stream_policy(chat, asked, record.id[:12]), sample.reads):
        audit.feed(batch)
        is_broken = is_broken or any(isinstance(event, Broken) for event in batch)
    breaches = frozenset(audit.breaches()) | ({"error"} if is_broken else set())
    made = tuple(RecordedCall(name, _value("".join(parts))) for name, parts in audit.calls)
    return ReplayedReply(made, breaches)


def _asked(record: ShadowRecord, chat: ChatRequest, engine: ReplayEngine) -> AskedEngine:
    target, abilities = engine.target, engine.abilities
    thinking = thinking_for(chat, None if record.thinking else 0, target.dialect, abilities)
    return AskedEngine(target.dialect, target.served_model, abilities, thinking, guard=engine.guard)


def _body(record: ShadowRecord) -> dict[str, Any]:
    body = {**record.request, "model": record.model, "stream": True}
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        body["max_tokens"] = LONGEST_ANSWER
    return {**body, "temperature": 0.0, "top_p": 1.0, "seed": 0}


def _chat(record: ShadowRecord) -> ChatRequest | None:
    try:
        return check_chat(_body(record), _MOST_MESSAGES)
    except RequestError:
        return None


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
