"""Whether what runs is what was judged. Pure; `app.promotion.identify` asks the questions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from app.engines.identity import UNKNOWN
from app.promotion.phases import Fault
from deploy.engine.spec import EngineSpec
from gates.artefact.artefact import Snapshot
from gates.report import statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What runs, by its own word and by that of whoever runs it; None or empty for what nobody says.

    `settings` are an embedded child's, from its command line. `file` is the weights' file on this
    host and `file_digest` its digest now; `loaded` says whether the very file that lies there is
    what the process has in memory: None where that cannot be seen (it was read, and not mapped).
    `before` are the artefact's files as they lay there before they were loaded, None if nobody looked,
    and `after` as they lay there when all had been hashed. `changed` are artefact files that are not what the manifest says, `model` the path that the engine names.
    """

    driver: str
    argv: tuple[str, ...] = ()
    settings: Mapping[str, Any] | None = None
    image: str | None = None
    file: str | None = None
    file_digest: str | None = None
    loaded: bool | None = None
    before: Snapshot | None = field(default=None, compare=False)
    after: Snapshot | None = field(default=None, compare=False)
    changed: tuple[str, ...] = ()
    model: str | None = None
    serves: tuple[str, ...] = ()
    build: str = UNKNOWN
    who: str | None = field(default=None, compare=False)  # a process id, or a container's


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What should run. `engine` is what was judged, None for weights without a manifest; `artefact` the
    path that is served, resolved; `settings` those of an embedded child."""

    spec: EngineSpec
    engine: statement.Engine | None
    settings: Mapping[str, Any] | None
    artefact: str | None


def differs(found: Running, wanted: Expected) -> Fault | None:
    """The first way in which what runs is not what should; None: it is. Pure."""
    for what, is_now, should_be in _questions(found, wanted):
        if is_now != should_be:
            line = f"the running engine's {what} is {_short(is_now)}, and was to be {_short(should_be)}"
            return Fault("mismatch_running", line)
    if found.before is not None and found.before != found.after:
        what = next((path for path in _paths_that_differ(found.before, found.after or ())), "a file")
        why = f"{what} was written to or exchanged after it was loaded; stop the engine and promote it again"
        return Fault("mismatch_artefact", why)
    return None


def _paths_that_differ(before: Snapshot, after: Snapshot) -> Iterable[str]:
    """Names without folders: an operator's message holds no path of the host."""
    return (PurePath(entry[0]).name for entry in sorted(set(before) ^ set(after)))


def _questions(found: Running, wanted: Expected) -> Iterable[tuple[str, object, object]]:
    spec, engine = wanted.spec, wanted.engine
    yield "driver", found.driver, spec.driver
    if wanted.settings is not None and found.argv:  # some kernels do not tell a command line
        for key in sorted({*wanted.settings, *(found.settings or {})}):
            yield f"setting {key}", (found.settings or {}).get(key), wanted.settings.get(key)
    if spec.driver == "docker":
        yield "image", found.image, spec.image
        yield "flags", spec.args if _within(spec.args, found.argv) else found.argv, spec.args
    if spec.driver != "url":
        yield "artefact", found.file, wanted.artefact
        yield "artefact on disk", found.changed, ()
        yield "file in memory", "one that was replaced" if found.loaded is False else "this", "this"
    if spec.driver == "embedded":
        yield "model path", found.model, found.file
    if engine is not None:
        if found.file_digest is not None or spec.driver == "embedded":
            yield "model file", found.file_digest, engine.model_file
        if engine.build != UNKNOWN:
            yield "build", found.build, engine.build


def _within(few: Sequence[str], many: Sequence[str]) -> bool:
    """Whether these words stand in a row among those."""
    return any(tuple(many[i : i + len(few)]) == tuple(few) for i in range(len(many) - len(few) + 1))


def _short(value: object) -> str:
    return "not known" if value is None else f"{value!r:.100}"
