"""Replays records on two engines: starts those that do not run, sends the requests, and compares the replies.

Requests are those that the gateway would send, at temperature 0; replies are parsed by the gateway's own stream core, and
none is kept.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from app.api.chat_request import ChatRequest, check_chat
from app.api.engine_request import AskedEngine, stream_policy, thinking_for, upstream_body
from app.config.config import Config
from app.engines.heard import replayed
from app.engines.identity import target_of
from app.engines.started import started
from app.errors.tree import RequestError
from app.shadow.compare import Comparison, ReplayedReply, compare
from app.shadow.record import SCHEMA, RecordedCall, ShadowRecord
from app.shadow.store import Store
from app.stream.audit import ReplyAudit
from app.stream.conduct import Guard, conduct, held_characters
from deploy.engine.abilities import Abilities
from deploy.engine.spec import EngineSpec
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


@dataclass(frozen=True, slots=True)
class _Engine:
    """A running engine. `guard` is how many characters at the start of a reply are held back."""

    name: str
    target: Target
    abilities: Abilities
    guard: int

    def asked(self, record: ShadowRecord, chat: ChatRequest) -> AskedEngine:
        dialect, abilities = self.target.dialect, self.abilities
        thinking = thinking_for(chat, None if record.thinking else 0, dialect, abilities)
        return AskedEngine(dialect, self.target.served_model, abilities, thinking, guard=self.guard)


@dataclass(frozen=True, slots=True)
class _Ask:
    """A record that is a valid request, with what each engine is sent."""

    record: ShadowRecord
    chat: ChatRequest
    requests: list[PlannedRequest]


async def replay(
    config: Config,
    now: datetime,
    *,
    candidate: str,
    against: str | None = None,
    model: str | None = None,
    days: int = 1,
    limit: int | None = None,
    track: Callable[[str], Display | None] = lambda _: None,
) -> Comparison:
    """Replay the newest `limit` records of the last `days` times 24 hours on both engines, and compare the replies.

    `against` is by default the engine of the newest record, and `model` any public model.

    Raises:
        FileNotFoundError: there is no record of that time or model.
        RunError: an engine does not start, or has ended. ConfigError: it is not configured. SamplesError.
        DeployError: an engine's configuration is wrong, or Docker does not answer.
    """
    store, since = Store(config.state_dir), now - timedelta(days=days)
    store.forget(now.astimezone(UTC).date(), config.shadow.keep_days)
    found = [record for record in store.records(since) if model in (None, record.model)]
    records = sorted(found, key=lambda record: record.at)[-(limit or 0) :]
    if not records:
        raise FileNotFoundError(
            f"nothing{f' of model {model}' if model else ''} was recorded since {since:%Y-%m-%d %H:%M} UTC in "
            f"{store.folder}; set record = true in [shadow], or look further back with --days"
        )
    baseline = against or records[-1].engine
    if candidate == baseline:
        raise RunError(f"{baseline} would be compared with itself; name another with --against")
    specs = [config.engine(name) for name in (candidate, baseline)]
    models = {record.model for record in records}
    guards = [served.thought_guard for name, served in config.models.items() if name in models]
    async with AsyncExitStack() as stack:
        engines = [await _up(config, spec, stack, guards) for spec in specs]
        asks = _asks(records, engines)
        with (
            TemporaryDirectory() as folder,
            SampleStore(Path(folder) / "replies.jsonl", suite=SUITE) as ledger,
        ):
            targets = {engine.name: engine.target for engine in engines}
            await run(
                [one for ask in asks for one in ask.requests], targets, ledger, progress=track("replay")
            )
            samples = {sample.key.digest: sample for sample in ledger.samples()}
    trios = []
    for ask in asks:
        ours, theirs = (
            _read(ask, samples[sent.key.digest], engine)
            for sent, engine in zip(ask.requests, engines, strict=True)
        )
        trios.append((ask.record, ours, theirs))
    return compare(trios, candidate=candidate, baseline=baseline, unusable=len(records) - len(trios))


async def _up(config: Config, spec: EngineSpec, stack: AsyncExitStack, guards: Sequence[Guard]) -> _Engine:
    _, state = await started(config, spec, stack)
    target = target_of(spec, state, spec.name, spec.name)
    shown = conduct(state.abilities, gated=False, caught=state.abilities.off_works is False)
    guard = max((held_characters(guard, shown) for guard in guards), default=0)
    return _Engine(spec.name, target, state.abilities, guard)


def _asks(records: Iterable[ShadowRecord], engines: Sequence[_Engine]) -> list[_Ask]:
    """The records that are valid requests and that all engines support."""
    found = []
    for record in records:
        body = {
            **record.request,
            "model": record.model,
            "stream": True,
            "temperature": 0.0,
            "top_p": 1.0,
            "seed": 0,
        }
        if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
            body["max_tokens"] = LONGEST_ANSWER
        with suppress(RequestError):
            chat = check_chat(body)  # which puts its turns in an engine's words
            if chat.is_begun and any(engine.abilities.continues is False for engine in engines):
                continue
            found.append(_Ask(record, chat, [_request(record, chat, body, engine) for engine in engines]))
    return found


def _request(
    record: ShadowRecord, chat: ChatRequest, body: dict[str, Any], engine: _Engine
) -> PlannedRequest:
    sent, target = json.loads(upstream_body(chat, body, engine.asked(record, chat))), engine.target
    digest = body_digest(sent)
    key = SampleKey(SUITE, target.artefact, target.engine, digest, engine.name, record.id, 0, "stream")
    return PlannedRequest(key, sent)


def _read(ask: _Ask, sample: Sample, engine: _Engine) -> ReplayedReply:
    """Parse a raw reply."""
    if sample.fault is not None:
        return ReplayedReply(lost=True)
    if sample.status != 200:
        return ReplayedReply(breaches=frozenset({"error"}))
    asked = engine.asked(ask.record, ask.chat)
    audit, is_broken = ReplyAudit(asked.thinking != 0), False
    for batch in replayed(ask.chat, asked, stream_policy(ask.chat, asked, ask.record.id[:12]), sample.reads):
        audit.feed(batch)
        is_broken = is_broken or any(isinstance(event, Broken) for event in batch)
    breaches = frozenset(audit.breaches()) | ({"error"} if is_broken else set())
    return ReplayedReply(
        tuple(RecordedCall(name, _value("".join(parts))) for name, parts in audit.calls), breaches
    )


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
