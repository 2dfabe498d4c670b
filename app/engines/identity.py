"""What serves an artefact, in a report's terms: canonical, so that the same engine has the same digest."""

from importlib import metadata

from deploy.engine.engine import EngineState
from deploy.engine.spec import EngineSpec
from gates.artefact.manifest import Artefact
from gates.report.statement import Engine

UNKNOWN = "unknown"


def describe(spec: EngineSpec, state: EngineState, artefact: Artefact) -> Engine:
    """An engine that is up."""
    return _engine(spec, artefact, build_of(spec, state))


def planned(spec: EngineSpec, artefact: Artefact) -> Engine:
    """An engine as the configuration would start it; its build is known before only where it is our own wheel."""
    return _engine(spec, artefact, build_of(spec, EngineState(name=spec.name)))


def build_of(spec: EngineSpec, state: EngineState) -> str:
    """The engine's word for its version. An embedded llama.cpp is the wheel that is installed."""
    if spec.driver == "embedded":
        return f"xllamacpp {metadata.version('xllamacpp')}"
    return state.abilities.build or UNKNOWN


def _engine(spec: EngineSpec, artefact: Artefact, build: str) -> Engine:
    weights = [entry for entry in artefact.files if entry.path.endswith(".gguf")]
    return Engine(
        name=spec.name,
        driver=spec.driver,
        dialect=spec.dialect,
        image=spec.image,
        argv=spec.args,
        environment={},
        build=build,
        model_file=f"sha256:{weights[0].sha256}" if len(weights) == 1 else None,
    )
