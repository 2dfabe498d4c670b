"""Inspection of a running engine: what it is, compared with what was judged.

The engine may have been started before the configuration was edited, from a file that was replaced since, or by
somebody else. So the kernel is asked for the command line of a process that may outlive us, Docker for what the
container was made from, and the engine for its model; the weights' files are hashed, and their metadata compared with
those before the load. An engine that we do not run (driver url) can only be asked for its build and its model.

A replica is identified after every start, before its first request, and what it states must equal what the other
replicas state. One that differs gets no requests; one that cannot be identified is asked again.
"""

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Final

from app.engines.identity import UNKNOWN, build_of, describe
from app.engines.pool import EnginePool
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import EffectError, FailureReason, RefusalError
from app.telemetry.log import Logger
from deploy.core.engine_http import HTTP_ERRORS, ask_engine, plain_word, read_json
from deploy.core.errors import DeployError
from deploy.core.tasks import report
from deploy.engine.openai_api import has_placeholder
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine
from deploy.engine.weights import find_model
from gates.artefact.artefact import MANIFEST, Artefact, Snapshot, folder_of, hash_file, load, snapshot
from gates.contracts.errors import ManifestError
from gates.report import statement

ASK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 5.0
"""Seconds until a replica that could not be identified is asked again."""
PATH_CHARACTERS: Final = 4096
"""The longest path of a model that an engine may state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """Facts of a running engine, which the engine, the kernel or Docker states. None or empty: unknown."""

    argv: tuple[str, ...] = ()
    image: str | None = None
    file: str | None = None  # of the weights, on this host
    file_digest: str | None = None  # as it is now
    before: Snapshot | None = None  # of the artefact's files before the load
    after: Snapshot | None = None  # and once all had been hashed
    changed: tuple[str, ...] = ()  # artefact files that differ from the manifest
    model: str | None = None  # the path that the engine states
    build: str = UNKNOWN


async def identify(
    engine: Engine, spec: EngineSpec, judged: statement.EngineIdentity | None = None
) -> dict[str, object]:
    """Inspect a running engine; its identity as evidence. Hashes the weights, once for each change.

    `judged` is the report's engine; without one, it must match the configuration and the manifest.

    Raises:
        RefusalError: mismatch_running: it is another engine. mismatch_artefact: its weights were replaced
            while they were loaded, or since.
        EffectError: engine_down: it is not up, or does not state what it is.
    """
    if engine.url is None:
        raise _down(f"{spec.name} is not up: {engine.state.last_error}")
    try:
        artefact = await asyncio.to_thread(_manifest, spec)
        described = await engine.describe()
        model = await _stated_model(engine.url, spec)
        found = RunningEngine(
            argv=tuple(described.get("argv") or ()),
            image=described.get("image"),
            file=described.get("model_file"),
            before=described.get("weights"),
            model=model,
            build=build_of(spec, engine.state),
        )
        found = await asyncio.to_thread(_with_weights, found, spec, artefact)
        served = str(find_model(spec)) if spec.artefact is not None and spec.driver != "url" else None
    except (ManifestError, DeployError, OSError) as error:
        raise _down(f"{spec.name} cannot be identified: {error}") from None
    if fault := differs(found, spec, judged or (describe(spec, artefact) if artefact else None), served):
        raise RefusalError(fault)
    return {
        "driver": spec.driver,
        "who": described.get("container") or (described.get("pid") and str(described["pid"])),
        "image": found.image,
        "model_file": found.file_digest,
        "model": found.model,
        "build": found.build,
        "numerics": str(described["numerics"]),
    }


def _down(why: str) -> EffectError:
    return EffectError(FailureReason("engine_down", why))


def _manifest(spec: EngineSpec) -> Artefact | None:
    if spec.artefact is None or not (folder_of(spec.artefact) / MANIFEST).is_file():
        return None
    return load(folder_of(spec.artefact))


def _with_weights(found: RunningEngine, spec: EngineSpec, artefact: Artefact | None) -> RunningEngine:
    """With the digests of the served file and of the artefact's files, and a snapshot taken after them. Raises OSError."""
    digest = _hashed(Path(found.file)) if found.file else None
    found = replace(found, file_digest=digest and f"sha256:{digest}")
    if spec.artefact is None:
        return found
    folder = folder_of(spec.artefact)
    files = artefact.files if artefact is not None and spec.driver != "url" else ()
    changed = tuple(entry.path for entry in files if _hashed(folder / entry.path) != entry.sha256)
    return replace(found, changed=changed, after=snapshot(spec.artefact))


def _hashed(path: Path) -> str | None:
    """The SHA-256 of a file, cached until its metadata change; None: it is none."""
    if not path.is_file():
        return None
    seen = path.stat()
    return _hash(path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


@functools.lru_cache(maxsize=256)
def _hash(path: Path, *fingerprint: int) -> str:
    return hash_file(path.resolve())[1]


async def _stated_model(url: str, spec: EngineSpec) -> str | None:
    """The path of its model, as the engine states it. Raises EffectError."""
    llama = spec.dialect == "llama-server"
    try:
        async with asyncio.timeout(ASK_SECONDS):
            address = f"{url}/props" if llama else f"{url}/v1/models"
            async with ask_engine("GET", address, access=spec.access) as reply:
                said = await read_json(reply)
        return plain_word(said.get("model_path") if llama else said["data"][0].get("root"), PATH_CHARACTERS)
    except (TimeoutError, *HTTP_ERRORS, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _down(f"{spec.name} does not say what it serves ({type(error).__name__})") from None


# ------------------------------------------------------------------------------------ compared


def differs(
    found: RunningEngine, spec: EngineSpec, engine: statement.EngineIdentity | None, artefact: str | None
) -> FailureReason | None:
    """The first difference between what runs and what should; None: there is none.

    `engine` is what was judged (None: weights without a manifest), `artefact` the resolved path that is served.
    """
    for what, is_now, should_be in _comparisons(found, spec, engine, artefact):
        if is_now != should_be:
            line = f"the running engine's {what} is {_short(is_now)}, and was to be {_short(should_be)}"
            return FailureReason("mismatch_running", line)
    if found.before is not None and found.before != found.after:
        what = next((path for path in _paths_that_differ(found.before, found.after or ())), "a file")
        why = f"{what} was written to or exchanged after it was loaded; stop the engine and promote it again"
        return FailureReason("mismatch_artefact", why)
    return None


def _paths_that_differ(before: Snapshot, after: Snapshot) -> Iterable[str]:
    """Names without folders: messages to operators hold no path of the host."""
    return (PurePath(entry[0]).name for entry in sorted(set(before) ^ set(after)))


def _comparisons(
    found: RunningEngine, spec: EngineSpec, engine: statement.EngineIdentity | None, artefact: str | None
) -> Iterable[tuple[str, object, object]]:
    if spec.driver == "docker":
        yield "image", found.image, spec.image
    if spec.command is not None:
        yield "command", found.argv[: len(spec.command)], spec.command
    if spec.driver in ("docker", "process"):
        yield "flags", spec.args if _within(_fixed_words(spec), found.argv) else found.argv, spec.args
    if spec.driver != "url":
        yield "artefact", found.file, artefact
        yield "artefact on disk", found.changed, ()
    if spec.driver == "embedded" or (spec.driver == "process" and spec.dialect != "openai"):
        yield "model path", found.model, found.file
    if engine is not None:
        if found.file_digest is not None or spec.driver == "embedded":
            yield "model file", found.file_digest, engine.model_file
        if engine.build != UNKNOWN:
            yield "build", found.build, engine.build


def _fixed_words(spec: EngineSpec) -> tuple[str | None, ...]:
    """The flags; None for one that says where the engine was started, and so differs from start to start."""
    free = spec.dialect == "openai"
    return tuple(None if free and has_placeholder(word) else word for word in spec.args)


def _within(few: Sequence[str | None], many: Sequence[str]) -> bool:
    """Whether `few` occurs in `many` as a contiguous sequence; None is any word."""
    starts = range(len(many) - len(few) + 1)
    return any(all(w in (None, many[i + at]) for at, w in enumerate(few)) for i in starts)


def _short(value: object) -> str:
    return "not known" if value is None else f"{value!r:.100}"


# ------------------------------------------------------------------------------------ replicas

Facts = Mapping[str, object]
"""Facts that an engine states of itself, by name; facts it does not state are absent."""


class ReplicaWatch:
    """Identifies replicas as they come up. `run` is its task."""

    def __init__(self, pool: EnginePool, catalogue: SpecCatalogue, log: Logger) -> None:
        self._pool = pool
        self._catalogue = catalogue
        self._log = log
        self._facts: dict[str, Facts] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._pool.changed.clear()
            for name in self._pool.to_identify():
                try:
                    await self._look_at(name)
                except Exception as error:  # the others are identified all the same
                    report("replicas", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS if self._pool.to_identify() else None):
                    await self._pool.changed.wait()

    async def _look_at(self, name: str) -> None:
        spec = next((spec for spec in self._catalogue.values() if spec.name == name), None)
        if spec is None:
            return
        engine = self._pool.started(name)
        try:
            facts = await _facts(engine, spec)
        except RefusalError as refused:
            why = "it is not what was promoted or configured"
            return self._refuse(name, refused.fault.code, why, refused.fault.message)
        except EffectError as error:
            self._log.warning("replica_unknown", engine=name, code=error.fault.code)
            return
        for sibling in sorted(self._pool.siblings(name)):
            others = self._facts.get(sibling, {})
            if self._pool.takes(sibling) and (what := difference(facts, others)):
                detail = f"its {what} is {facts[what]!s:.100}, and that of {sibling} {others[what]!s:.100}"
                return self._refuse(name, "mismatch_replica", f"its {what} is not that of {sibling}", detail)
        self._facts[name] = facts
        self._pool.identify(name)
        self._log.info("replica_identified", engine=name)

    def _refuse(self, name: str, code: str, why: str, detail: str) -> None:
        """`why` may be shown to anybody; `detail` may quote the engine, and is for operators."""
        shown = f"{code}: {why}"
        self._pool.identify(name, shown, detail)
        self._log.error("replica_refused", engine=name, code=code, reason=shown)


def difference(found: Facts, others: Facts) -> str | None:
    """The first name, in alphabetical order, whose facts differ between a replica and its sibling; None if none does."""
    return next((what for what in sorted(found.keys() & others.keys()) if found[what] != others[what]), None)


async def _facts(engine: Engine, spec: EngineSpec) -> Facts:
    """The facts of a running engine. Raises RefusalError if they contradict the configuration or the manifest, EffectError if
    the engine does not state them."""
    found = await identify(engine, spec)
    model = PurePath(str(found["model"])).name if found["model"] else None
    facts = {"build": found["build"], "model": model, "numerics": found["numerics"]}
    return {name: value for name, value in facts.items() if value is not None}
