"""Replays records on two engines: starts those that do not run, sends the requests, and compares the replies.

Requests are those that the gateway would send, at temperature 0; replies are parsed by the gateway's own stream core, and
none is kept.
"""

import hashlib
import json
from collections.abc import Iterable
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
from app.shadow.compare import Comparison, ReplayedRecord, ReplayedReply, compare
from app.shadow.record import SCHEMA, ShadowRecord
from app.shadow.store import Store
from app.stream.audit import ReplyAudit
from app.stream.thinking_control import HELD, thinking_control
from deploy.engine.abilities import Abilities
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
GREEDY: Final = {"stream": True, "temperature": 0.0, "top_p": 1.0, "seed": 0}


@dataclass(frozen=True, slots=True)
class _Ask:
    """A record that is a valid request."""

    record: ShadowRecord
    body: dict[str, Any]
    chat: ChatRequest


@dataclass(frozen=True, slots=True)
class _Engine:
    """A running engine."""

    name: str
    target: Target
    abilities: Abilities

    def asked(self, ask: _Ask) -> AskedEngine:
        dialect, abilities = self.target.dialect, self.abilities
        control = thinking_control(abilities, gated=False, violated=abilities.off_works is False)
        thinking = thinking_for(ask.chat, None if ask.record.thinking else 0, dialect, abilities)
        return AskedEngine(dialect, self.target.served_model, abilities, thinking, guard=HELD[control])


async def replay(
    config: Config,
    now: datetime,
    *,
    candidate: str,
    against: str | None = None,
    days: int = 1,
    limit: int | None = None,
    progress: Display | None = None,
) -> Comparison:
    """Replay the newest `limit` records of the last `days` times 24 hours on both engines, and compare the replies.

    `against` is by default the engine of the newest record.

    Raises:
        FileNotFoundError: there is no record of that time.
        RunError: an engine does not start, or has ended. ConfigError: it is not configured. SamplesError.
        DeployError: an engine's configuration is wrong, or Docker does not answer.
    """
    store, since = Store(config.state_dir), now - timedelta(days=days)
    store.forget(now.astimezone(UTC).date(), config.shadow.keep_days)
    records = sorted(store.records(since), key=lambda record: record.at)[-(limit or 0) :]
    if not records:
        raise FileNotFoundError(
            f"nothing was recorded since {since:%Y-%m-%d %H:%M} UTC in {store.folder}; "
            "set record = true in [shadow], or look further back with --days"
        )
    baseline = against or records[-1].engine
    if candidate == baseline:
        raise RunError(f"{baseline} would be compared with itself; name another with --against")
    specs, asks = [config.engine(name) for name in (candidate, baseline)], _asks(records)
    async with AsyncExitStack() as stack:
        engines = []
        for spec in specs:
            _, state = await started(config, spec, stack)
            engines.append(_Engine(spec.name, target_of(spec, state, spec.name, spec.name), state.abilities))
        planned = [_planned(ask, engine) for ask in asks for engine in engines]
        with (
            TemporaryDirectory() as folder,
            SampleStore(Path(folder) / "replies.jsonl", suite=SUITE) as ledger,
        ):
            targets = {engine.name: engine.target for engine in engines}
            await run(planned, targets, ledger, progress=progress)
            samples = {(sample.key.case, sample.key.arm): sample for sample in ledger.samples()}
    found = []
    for ask in asks:
        ours, theirs = (_read(ask, engine, samples[ask.record.id, engine.name]) for engine in engines)
        if ours is not None and theirs is not None:
            found.append(ReplayedRecord(ask.record, ours, theirs))
    return compare(found, candidate=candidate, baseline=baseline, left_out=len(records) - len(found))


def _asks(records: Iterable[ShadowRecord]) -> list[_Ask]:
    """The records that are valid requests."""
    found = []
    for record in records:
        body = {**record.request, "model": record.model, **GREEDY}
        if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
            body["max_tokens"] = LONGEST_ANSWER
        with suppress(RequestError):
            chat = check_chat(body)  # which puts its turns in an engine's words
            found.append(_Ask(record, body, chat))
    return found


def _planned(ask: _Ask, engine: _Engine) -> PlannedRequest:
    sent, target = json.loads(upstream_body(ask.chat, ask.body, engine.asked(ask))), engine.target
    digest = body_digest(sent)
    key = SampleKey(SUITE, target.artefact, target.engine, digest, engine.name, ask.record.id, 0, "stream")
    return PlannedRequest(key, sent)


def _read(ask: _Ask, engine: _Engine, sample: Sample) -> ReplayedReply | None:
    """Parse a raw reply; None if the connection failed, which says nothing about the engine."""
    if sample.fault is not None:
        return None
    if sample.status != 200:
        return ReplayedReply(breaches=frozenset({"error"}))
    asked = engine.asked(ask)
    audit, is_broken = ReplyAudit(asked.thinking != 0), False
    for batch in replayed(ask.chat, asked, stream_policy(ask.chat, asked, ask.record.id[:12]), sample.reads):
        audit.feed(batch)
        is_broken = is_broken or any(isinstance(event, Broken) for event in batch)
    breaches = frozenset(audit.breaches()) | ({"error"} if is_broken else set())
    return ReplayedReply(tuple((name, "".join(parts)) for name, parts in audit.calls), breaches)
