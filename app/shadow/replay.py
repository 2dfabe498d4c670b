"""Replays records on two engines: starts those that do not run, sends the requests, and compares the replies.

Requests are those that the gateway would send, at temperature 0; replies are parsed by the gateway's own stream core, and
none is kept.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from app.api.chat_request import ChatRequest, check_chat
from app.api.engine_request import AskedEngine, stream_policy, thinking_for, upstream_body
from app.config.config import Config
from app.engines.heard import replayed
from app.engines.identity import build_of, target_of
from app.engines.started import started
from app.errors.tree import RequestError
from app.shadow.compare import Comparison, ReplayTrio, compare
from app.shadow.record import SCHEMA, RecordedCall, ReplayedReply, ShadowRecord
from app.shadow.store import Store
from app.stream.audit import ReplyAudit
from app.stream.conduct import Guard, conduct, held_characters
from deploy.drivers.docker import weights_digest
from deploy.engine.abilities import Abilities
from deploy.engine.spec import EngineSpec, spec_digest
from gates.contracts.errors import RunError
from gates.contracts.sample import Sample, SampleKey
from gates.reply.events import Broken
from gates.run.progress import Display
from gates.run.request import PlannedRequest, body_digest
from gates.run.runner import run
from gates.run.sample_store import SampleStore
from gates.run.target import Target

SUITE: Final = f"sha256:{hashlib.sha256(SCHEMA.encode()).hexdigest()}"
"""Takes the place of the suite's digest in the samples' keys; every record is its own case."""
LONGEST_ANSWER: Final = 1024
"""max_tokens where a request has none, because a candidate may repeat itself endlessly."""
Track = Callable[[str], Display | None]


@dataclass(frozen=True, slots=True)
class ReplayEngine:
    """A running engine. `guard` is how many characters at the start of a reply are held back."""

    name: str
    target: Target
    abilities: Abilities = Abilities()
    guard: int = 0


class NothingRecorded(Exception):
    """There is nothing to replay; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The records to replay: the newest `limit` records of the last `days` times 24 hours."""

    candidate: str
    against: str | None = None  # None: the engine of the newest record
    model: str | None = None  # None: any public model
    days: int = 1
    limit: int | None = None


async def replay(
    config: Config, wanted: ReplayRequest, now: datetime, track: Track = lambda _: None
) -> Comparison:
    """Replay the records on both engines, and compare the replies.

    Raises:
        NothingRecorded: there is no record of that time or model.
        RunError: an engine does not start, or has ended. ConfigError: it is not configured. SamplesError.
        DeployError: an engine's configuration is wrong, or Docker does not answer.
    """
    store = Store(config.state_dir)
    store.forget(now.astimezone(UTC).date(), config.shadow.keep_days)
    records = _select_records(store, wanted, now)
    baseline = wanted.against or records[-1].engine
    if wanted.candidate == baseline:
        raise RunError(f"{baseline} would be compared with itself; name another with --against")
    specs = [config.engine(name) for name in (wanted.candidate, baseline)]
    models = {record.model for record in records}
    guards = [model.thought_guard for name, model in config.models.items() if name in models]
    async with AsyncExitStack() as stack:
        engines = [await _up(config, spec, stack, guards) for spec in specs]
        trios = await _ask(requests_for(records, engines), engines, track)
    return compare(trios, candidate=wanted.candidate, baseline=baseline, unusable=len(records) - len(trios))


def _select_records(store: Store, wanted: ReplayRequest, now: datetime) -> list[ShadowRecord]:
    since = now - timedelta(days=wanted.days)
    found = [r for r in store.records(since) if wanted.model in (None, r.model)]
    found.sort(key=lambda record: record.at)
    if wanted.limit is not None:
        found = found[-wanted.limit :]
    if not found:
        of = f" of model {wanted.model}" if wanted.model else ""
        raise NothingRecorded(
            f"nothing{of} was recorded since {since:%Y-%m-%d %H:%M} UTC in {store.folder}; "
            "set record = true in [shadow], or look further back with --days"
        )
    return found


async def _up(
    config: Config, spec: EngineSpec, stack: AsyncExitStack, guards: Sequence[Guard]
) -> ReplayEngine:
    _, state = await started(config, spec, stack)
    weights = str(state.url) if spec.artefact is None else weights_digest(spec.artefact)
    engine_digest = f"{spec_digest(spec)} {build_of(spec, state)} {state.model}"
    target = target_of(spec, state, weights, engine_digest)
    shown = conduct(state.abilities, gated=False, caught=state.abilities.off_works is False)
    guard = max((held_characters(guard, shown) for guard in guards), default=0)
    return ReplayEngine(spec.name, target, state.abilities, guard)


async def _ask(
    asks: Sequence[tuple[ShadowRecord, tuple[PlannedRequest, ...]]],
    engines: Sequence[ReplayEngine],
    track: Track,
) -> list[ReplayTrio]:
    targets = {engine.name: engine.target for engine in engines}
    wanted = [ask for _, pair in asks for ask in pair]
    with TemporaryDirectory() as folder, SampleStore(Path(folder) / "replies.jsonl", suite=SUITE) as ledger:
        await run(wanted, targets, ledger, progress=track("replay"))
        samples = {sample.key.digest: sample for sample in ledger.samples()}
    trios: list[ReplayTrio] = []
    for record, pair in asks:
        ours, theirs = (
            read_reply(record, samples[ask.key.digest], engine)
            for ask, engine in zip(pair, engines, strict=True)
        )
        trios.append((record, ours, theirs))
    return trios


# ----------------------------------------------------------------- one record: pure


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
    body = _body(record)
    check_chat(body)  # which puts its turns in an engine's words
    sent = json.loads(upstream_body(chat, body, _asked(record, chat, engine)))
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
        return check_chat(_body(record))
    except RequestError:
        return None


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
