"""Runs a replay: starts engines that do not run, and sends them the recorded requests.

Replies are kept beside the records, by day, and deleted with them. A request that has a reply is not sent again.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from app.config.config import Config
from app.engines.identity import build_of, target_of
from app.engines.started import started
from app.shadow.compare import Comparison, ReplayTrio, compare
from app.shadow.record import ShadowRecord
from app.shadow.replay import SUITE, ReplayEngine, read_reply, requests_for
from app.shadow.store import Store, first_kept
from app.stream.conduct import Guard, conduct, held_characters
from deploy.drivers.docker import weights_digest
from deploy.engine.spec import EngineSpec, spec_digest
from gates.contracts.errors import RunError
from gates.run.progress import RunProgress
from gates.run.request import PlannedRequest
from gates.run.runner import run
from gates.run.sample_store import SampleStore

Track = Callable[[str], RunProgress | None]


class NothingRecorded(Exception):
    """There is nothing to replay; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What to replay: the newest `limit` records of the last `days` times 24 hours."""

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
    store.forget_before(first_kept(now.astimezone(UTC).date(), config.shadow.keep_days))
    records = _select_records(store, wanted, now)
    baseline = wanted.against or records[-1].engine
    if wanted.candidate == baseline:
        raise RunError(f"{baseline} would be compared with itself; name another with --against")
    specs = [config.engine(name) for name in (wanted.candidate, baseline)]
    models = {record.model for record in records}
    guards = [model.thought_guard for name, model in config.models.items() if name in models]
    async with AsyncExitStack() as stack:
        engines = [await _up(config, spec, stack, guards) for spec in specs]
        trios = await _ask(store, requests_for(records, engines), engines, track)
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
    store: Store,
    asks: Sequence[tuple[ShadowRecord, tuple[PlannedRequest, ...]]],
    engines: Sequence[ReplayEngine],
    track: Track,
) -> list[ReplayTrio]:
    """Send the requests day by day, as each day has its own file of replies."""
    targets = {engine.name: engine.target for engine in engines}
    trios: list[ReplayTrio] = []
    for day, group in groupby(asks, key=lambda pair: pair[0].when.astimezone(UTC).date()):
        of_day = list(group)
        with SampleStore(store.replay(day), suite=SUITE) as ledger:
            wanted = [ask for _, pair in of_day for ask in pair]
            await run(wanted, targets, ledger, progress=track(f"{day}"))
            keys = {ask.key.digest for ask in wanted}
            samples = {s.key.digest: s for s in ledger.samples() if s.key.digest in keys}
        for record, pair in of_day:
            ours, theirs = (
                read_reply(record, samples[ask.key.digest], engine)
                for ask, engine in zip(pair, engines, strict=True)
            )
            trios.append((record, ours, theirs))
    return trios
