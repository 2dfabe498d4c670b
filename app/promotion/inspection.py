"""Inspection of a running engine: what it is, compared with what was judged.

The engine may have been started before the configuration was edited, from a file that was replaced since, or by
somebody else. So the kernel is asked for a process's command line, Docker for what the container was made from, and the
engine for its model; the weights' files are hashed, and their metadata compared with those before the load. An engine
that we do not run (driver url) can only be asked for its build and its model.

A replica is identified after every start, before its first request, and what it states must equal what the other
replicas state. One that differs gets no requests; one that cannot be identified is asked again.
"""

import asyncio
import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Final

from app.engines.identity import UNKNOWN, build_of, describe
from app.engines.pool import EnginePool
from app.promotion.state_machine import EffectError, FailureReason, RefusalError
from app.telemetry.log import Logger
from deploy.core.engine_http import HTTP_ERRORS, ask_engine, plain_word, read_json
from deploy.core.errors import DeployError
from deploy.core.tasks import report
from deploy.engine.openai_api import has_placeholder
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine
from deploy.engine.weights import find_model
from gates.artefact.artefact import MANIFEST, Artefact, folder_of, hash_file, load, snapshot
from gates.contracts.errors import ManifestError
from gates.report.statement import EngineIdentity

ASK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 5.0
"""Seconds until a replica that could not be identified is asked again."""
PATH_CHARACTERS: Final = 4096
"""The longest path of a model that an engine may state."""


async def identify(
    engine: Engine, spec: EngineSpec, judged: EngineIdentity | None = None
) -> dict[str, object]:
    """Inspect a running engine; its identity as evidence. Hashes the weights, once for each change.

    `judged` is the report's engine; without one, it must match the configuration and the manifest.

    Raises RefusalError: it is another engine (mismatch_running), or its weights were replaced while they were loaded, or
    since (mismatch_artefact). EffectError (engine_down): it is not up, or does not state what it is.
    """
    if engine.url is None:
        raise _down(f"{spec.name} is not up: {engine.state.last_error}")
    try:
        model, build = await _stated_model(engine.url, spec), build_of(spec, engine.state)
        found = {**await engine.describe(), "model": model, "build": build}
        artefact, now = await asyncio.to_thread(_weights, spec, found.get("model_file"))
        served = str(find_model(spec)) if spec.artefact is not None and spec.driver != "url" else None
    except (ManifestError, DeployError, OSError) as error:
        raise _down(f"{spec.name} cannot be identified: {error}") from None
    found |= now
    if fault := differs(found, spec, judged or (describe(spec, artefact) if artefact else None), served):
        raise RefusalError(fault)
    return {
        "driver": spec.driver,
        "who": found.get("container") or (found.get("pid") and str(found["pid"])),
        "image": found.get("image"),
        "model_file": found["digest"],
        "model": model,
        "build": build,
        "numerics": str(found["numerics"]),
    }


def _down(why: str) -> EffectError:
    return EffectError(FailureReason("engine_down", why))


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


def _weights(spec: EngineSpec, file: str | None) -> tuple[Artefact | None, dict[str, object]]:
    """The manifest, and the served file and the artefact as they are now. Hashes: for a thread. Raises ManifestError, OSError.

    `digest` is that of the served file, `changed` are the files that differ from the manifest, `now` is a snapshot that was
    taken after that.
    """
    digest = _hashed(Path(file)) if file else None
    facts: dict[str, object] = {"digest": digest and f"sha256:{digest}", "changed": ()}
    if spec.artefact is None:
        return None, facts
    folder = folder_of(spec.artefact)
    artefact = load(folder) if (folder / MANIFEST).is_file() else None
    files = artefact.files if artefact is not None and spec.driver != "url" else ()
    changed = tuple(entry.path for entry in files if _hashed(folder / entry.path) != entry.sha256)
    return artefact, {**facts, "changed": changed, "now": snapshot(spec.artefact)}


def _hashed(path: Path) -> str | None:
    """The SHA-256 of a file, cached until its metadata change; None: it is none."""
    if not path.is_file():
        return None
    seen = path.stat()
    return _hash(path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


@functools.lru_cache(maxsize=256)
def _hash(path: Path, *fingerprint: int) -> str:
    return hash_file(path.resolve())[1]


def differs(
    found: Mapping[str, Any], spec: EngineSpec, engine: EngineIdentity | None, artefact: str | None
) -> FailureReason | None:
    """The first difference between what runs and what should; None: there is none.

    `found` are the facts of `Engine.describe` and `_weights`, with the `model` and the `build` that the engine states;
    `engine` is what was judged (None: weights without a manifest), `artefact` the resolved path that is served.
    """
    argv, file, driver = tuple(found.get("argv") or ()), found.get("model_file"), spec.driver
    states_path = driver == "embedded" or (driver == "process" and spec.dialect != "openai")
    has_digest = engine is not None and (found["digest"] is not None or driver == "embedded")
    build = engine.build if engine is not None else UNKNOWN
    compared = (  # what, whether it counts, as it is now, as it should be
        ("image", driver == "docker", found.get("image"), spec.image),
        ("command", spec.command is not None, argv[: len(spec.command or ())], spec.command),
        ("flags", driver in ("docker", "process"), spec.args if _has_flags(argv, spec) else argv, spec.args),
        ("artefact", driver != "url", file, artefact),
        ("artefact on disk", driver != "url", found["changed"], ()),
        ("model path", states_path, found["model"], file),
        ("model file", has_digest, found["digest"], engine and engine.model_file),
        ("build", build != UNKNOWN, found["build"], build),
    )
    for what, counts, is_now, should_be in compared:
        if counts and is_now != should_be:
            now, wanted = ("not known" if it is None else f"{it!r:.100}" for it in (is_now, should_be))
            line = f"the running engine's {what} is {now}, and was to be {wanted}"
            return FailureReason("mismatch_running", line)
    before, after = found.get("weights"), found.get("now")
    if before in (None, after):
        return None
    differing = sorted({*before} ^ {*(after or ())})
    what = PurePath(differing[0][0]).name if differing else "a file"  # operators see no path of the host
    why = f"{what} was written to or exchanged after it was loaded; stop the engine and promote it again"
    return FailureReason("mismatch_artefact", why)


def _has_flags(argv: Sequence[str], spec: EngineSpec) -> bool:
    """Whether a command line has the spec's flags, one behind the other. One that says where the engine was started, and so
    differs from start to start, may be any word."""
    free = spec.dialect == "openai"
    words = [None if free and has_placeholder(word) else word for word in spec.args]
    starts = range(len(argv) - len(words) + 1)
    return any(all(word in (None, argv[i + at]) for at, word in enumerate(words)) for i in starts)


class ReplicaWatch:
    """Identifies replicas as they come up. `run` is its task."""

    def __init__(self, pool: EnginePool, log: Logger) -> None:
        self._pool, self._log = pool, log
        self._facts: dict[str, dict[str, object]] = {}  # what each states of itself, by name

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._pool.changed.clear()
            for backend in self._pool.to_identify():
                try:
                    await self._look_at(backend.make(), backend.spec)
                except EffectError as error:
                    self._log.warning("replica_unknown", engine=backend.spec.name, code=error.fault.code)
                except Exception as error:  # the others are identified all the same
                    report("replicas", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS if self._pool.to_identify() else None):
                    await self._pool.changed.wait()

    async def _look_at(self, engine: Engine, spec: EngineSpec) -> None:
        """Admit a replica, or exclude it. Raises EffectError: it cannot be identified now."""
        try:
            found = await identify(engine, spec)
        except RefusalError as refused:
            why = "it is not what was promoted or configured"
            return self._refuse(spec.name, refused.fault.code, why, refused.fault.message)
        model = PurePath(str(found["model"])).name if found["model"] else None
        facts = {"build": found["build"], "model": model, "numerics": found["numerics"]}
        for sibling in sorted(filter(self._pool.takes, self._pool.siblings(spec.name))):
            for what, known in self._facts.get(sibling, {}).items():
                if None not in (known, facts[what]) and known != facts[what]:
                    detail = f"its {what} is {facts[what]!s:.100}, and that of {sibling} {known!s:.100}"
                    why = f"its {what} is not that of {sibling}"
                    return self._refuse(spec.name, "mismatch_replica", why, detail)
        self._facts[spec.name] = facts
        self._pool.identify(spec.name)
        self._log.info("replica_identified", engine=spec.name)

    def _refuse(self, name: str, code: str, why: str, detail: str) -> None:
        """`why` may be shown to anybody; `detail` may quote the engine, and is for operators."""
        shown = f"{code}: {why}"
        self._pool.identify(name, shown, detail)
        self._log.error("replica_refused", engine=name, code=code, reason=shown)
