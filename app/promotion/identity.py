"""Whether the running engine is the one that was judged. Pure; `app.promotion.inspection` collects the inputs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from app.engines.identity import UNKNOWN
from app.promotion.state_machine import FailureReason
from deploy.engine.openai_api import has_placeholder
from deploy.engine.spec import EngineSpec
from gates.artefact.artefact import Snapshot
from gates.report import statement


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """What runs, as stated by the engine and by what runs it (kernel, Docker); None or empty: not known."""

    argv: tuple[str, ...] = ()
    image: str | None = None
    file: str | None = None  # of the weights, on this host
    file_digest: str | None = None  # as it is now
    before: Snapshot | None = None  # of the artefact's files before the load
    after: Snapshot | None = None  # and once all had been hashed
    changed: tuple[str, ...] = ()  # artefact files that differ from the manifest
    model: str | None = None  # the path that the engine states
    build: str = UNKNOWN
    who: str | None = None  # id of its process or container


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEngine:
    """What should run."""

    spec: EngineSpec
    engine: statement.EngineIdentity | None  # what was judged; None: weights without a manifest
    artefact: str | None  # the resolved path that is served


def differs(found: RunningEngine, wanted: ExpectedEngine) -> FailureReason | None:
    """The first difference between what runs and what should; None: there is none."""
    for what, is_now, should_be in _comparisons(found, wanted):
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


def _comparisons(found: RunningEngine, wanted: ExpectedEngine) -> Iterable[tuple[str, object, object]]:
    spec, engine = wanted.spec, wanted.engine
    if spec.driver == "docker":
        yield "image", found.image, spec.image
    if spec.command is not None:
        yield "command", found.argv[: len(spec.command)], spec.command
    if spec.driver in ("docker", "process"):
        yield "flags", spec.args if _within(_fixed_words(spec), found.argv) else found.argv, spec.args
    if spec.driver != "url":
        yield "artefact", found.file, wanted.artefact
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
