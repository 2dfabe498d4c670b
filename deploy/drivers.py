"""From a spec to the engine that its driver runs."""

from pathlib import Path

from deploy.embedded import EmbeddedEngine
from deploy.engine import Engine, OnChange
from deploy.errors import SpecError
from deploy.spec import EngineSpec
from deploy.url import UrlEngine


def make_engine(spec: EngineSpec, *, state_dir: Path, on_change: OnChange | None = None) -> Engine:
    """The engine for a spec, stopped. Logs go to `state_dir/engines/`.

    Raises:
        SpecError: no driver of that name is built in.
        ArtefactError, FlagError: the embedded driver cannot serve this artefact or these flags.
    """
    if spec.driver == "embedded":
        return EmbeddedEngine(spec, state_dir=state_dir, on_change=on_change)
    if spec.driver == "url":
        return UrlEngine(spec, on_change=on_change)
    raise SpecError(spec.name, "driver", f"{spec.driver!r} is not built yet")
