"""The nano models over real llama.cpp servers, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deploy.drivers.embedded import EmbeddedEngine
from deploy.engine.spec import EngineSpec

MODELS = Path(__file__).parents[3] / "models"
ANNIE, STRANGER = MODELS / "annie-nano-q4_k_m", MODELS / "stranger-nano-q4_k_m"

needs_models = pytest.mark.skipif(not ANNIE.exists(), reason="the nano models are missing: make nano")


def spec_of(artefact: Path, *args: str, name: str = "nano") -> EngineSpec:
    """An embedded engine."""
    return EngineSpec(name=name, dialect="llama-server", driver="embedded", artefact=artefact, args=args)


@asynccontextmanager
async def running(spec: EngineSpec, state: Path) -> AsyncIterator[EmbeddedEngine]:
    """The engine, up until the block ends."""
    pytest.importorskip("xllamacpp", reason="no xllamacpp: make test")
    engine = EmbeddedEngine(spec, state_dir=state)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
