"""From records to requests, and from raw replies to what was said: by the gateway's own stream core. Pure.

An engine is asked as the gateway would ask it, at temperature 0. What it sends is kept raw
(`gates.run`), and read here: asked once, it can be read again and differently.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api.chat_request import ChatRequest, check_chat
from app.api.engine_request import stream_policy, upstream_body, without_parser
from app.errors.tree import RequestError
from app.shadow.record import SCHEMA, Call, Record
from app.stream.audit import ReplyAudit
from app.stream.clocks import Clocks
from app.stream.events import Broken, Event, Text
from app.stream.pipeline import Pipeline
from deploy.engine.abilities import Abilities
from gates.contracts.sample import Key, Sample
from gates.run.plan import Ask
from gates.run.request import digest
from gates.run.target import Target

SUITE: Final = f"sha256:{hashlib.sha256(SCHEMA.encode()).hexdigest()}"
"""What stands for a suite in the samples' keys: every record is its own case."""
LONGEST_ANSWER: Final = 1024
"""Tokens, where a request says nothing: a candidate that goes in circles has to end."""
_MOST_MESSAGES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """An engine under its name, up. `guard` is how many characters of its speech are held back."""

    name: str
    target: Target
    abilities: Abilities = Abilities()
    guard: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """What a caller would have got, and what was wrong with it.

    `breaches` are the names of `ReplyAudit.breaches`, and `error` where the engine failed the request.
    `lost`: it was never answered, for the way was cut; it says nothing of the engine. `wait` is
    seconds to the first content.
    """

    calls: tuple[Call, ...] = ()
    breaches: frozenset[str] = frozenset()
    characters: int = 0
    wait: float | None = None
    lost: bool = False


def ask_of(record: Record, asked: ParsedRequest) -> Ask | None:
    """The request for an engine; None where it cannot be made of what redaction left, or this engine
    does not take it."""
    chat = _chat(record)
    if chat is None or (chat.is_begun and asked.abilities.continues is False):
        return None
    body = _body(record)
    if not asked.abilities.parses_tools:
        body = without_parser(chat, body)
    target = asked.target
    thinking = chat.thinking_or(None if record.thinking else 0)
    sent = json.loads(upstream_body(chat, body, target.dialect, target.served_model, thinking))
    key = Key(SUITE, target.artefact, target.engine, digest(sent), asked.name, record.id, 0, "stream")
    return Ask(key, sent)


def asks_of(
    records: Iterable[Record], engines: Sequence[ParsedRequest]
) -> list[tuple[Record, tuple[Ask, ...]]]:
    """The records that every one of the engines can be asked, with the requests, one an engine."""
    found = []
    for record in records:
        asks = [ask_of(record, asked) for asked in engines]
        made = tuple(ask for ask in asks if ask is not None)
        if len(made) == len(engines):
            found.append((record, made))
    return found


def said(record: Record, sample: Sample, asked: ParsedRequest) -> Said:
    """A raw reply, read."""
    if sample.fault is not None:
        return Said(lost=True)
    chat = _chat(record)
    if sample.status != 200 or chat is None:
        return Said(breaches=frozenset({"error"}))
    thinking = chat.thinking_or(None if record.thinking else 0)
    pipeline = Pipeline(stream_policy(chat, asked.target.dialect, thinking, asked.guard, record.id[:12]))
    clocks, audit = Clocks(0.0), ReplyAudit(thinking != 0)
    events: list[Event] = []
    for batch, seconds in _batches(sample, pipeline):
        clocks.feed(batch, seconds)
        audit.feed(batch)
        events += batch
    breaches = frozenset(audit.breaches())
    if any(isinstance(event, Broken) for event in events):
        breaches |= {"error"}
    made = tuple(Call(name, _value("".join(parts))) for name, parts in audit.calls)
    return Said(
        calls=made,
        breaches=breaches,
        characters=sum(len(event.text) for event in events if isinstance(event, Text)),
        wait=clocks.first_content,
    )


def _batches(sample: Sample, pipeline: Pipeline) -> Iterable[tuple[list[Event], float]]:
    """Events and when they came, in seconds from the request's first byte."""
    end = sample.ended_ns / 1e9
    if sample.reads and sample.reads[0].data.lstrip().startswith(b"{"):  # it did not stream
        yield pipeline.feed_message(b"".join(read.data for read in sample.reads)), end
        return
    for read in sample.reads:
        yield pipeline.feed(read.data), read.at_ns / 1e9
    if not pipeline.over:
        yield pipeline.close(), end


def _body(record: Record) -> dict[str, Any]:
    body = {**record.request, "model": record.model, "stream": True}
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        body["max_tokens"] = LONGEST_ANSWER
    return {**body, "temperature": 0.0, "top_p": 1.0, "seed": 0}


def _chat(record: Record) -> ChatRequest | None:
    try:
        return check_chat(_body(record), _MOST_MESSAGES)
    except RequestError:
        return None


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
