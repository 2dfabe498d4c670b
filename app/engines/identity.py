"""An engine as a report states it: canonical, so that the same engine has the same digest."""

from importlib import metadata
from pathlib import PurePath

from deploy.engine.engine import EngineState
from deploy.engine.spec import EngineSpec
from gates.artefact.artefact import Artefact, folder_of, load
from gates.contracts.errors import ManifestError
from gates.report.statement import EngineIdentity
from gates.run.target import Target

UNKNOWN = "unknown"


def target_of(spec: EngineSpec, state: EngineState, artefact: str = "", engine: str = "") -> Target:
    """Where a running engine is asked; the digests matter only where samples are kept. Raises RunError: a password in its address."""
    assert state.url is not None
    return Target(
        url=state.url,
        served_model=state.model or spec.name,
        dialect=spec.dialect,
        artefact=artefact,
        engine=engine,
        **spec.access.client(),
    )


def manifest_of(spec: EngineSpec) -> Artefact | None:
    """The manifest beside the weights; None without a valid one, and then no report can be about it."""
    if spec.artefact is None:
        return None
    try:
        return load(folder_of(spec.artefact))
    except (ManifestError, OSError):
        return None


def describe(spec: EngineSpec, artefact: Artefact, state: EngineState | None = None) -> EngineIdentity:
    """An engine that runs; without a state, as the configuration would start it."""
    weights = [entry for entry in artefact.files if entry.path.endswith(".gguf")]
    program, *words = spec.command or ("",)
    return EngineIdentity(
        name=spec.name,
        driver=spec.driver,
        dialect=spec.dialect,
        image=spec.image,
        # Where a program lies is no matter of a report.
        argv=(*((PurePath(program).name, *words) if program else ()), *spec.args),
        environment=dict(spec.env or ()),
        build=build_of(spec, state),
        model_file=f"sha256:{weights[0].sha256}" if len(weights) == 1 else None,
    )


def build_of(spec: EngineSpec, state: EngineState | None = None) -> str:
    """The version that the engine states; for an embedded llama.cpp, that of the installed wheel."""
    if spec.driver == "embedded":
        return f"xllamacpp {metadata.version('xllamacpp')}"
    return (state and state.abilities.build) or UNKNOWN
