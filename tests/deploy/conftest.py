"""What the tests of engines share: a real model, and the rule that nothing may be left running."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.engine.engine import EngineState, Phase
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine
from tests.scale import PATIENCE

NANO = Path(__file__).parents[2] / "models" / "annie-nano-q4_k_m" / "annie-nano-q4_k_m.gguf"


@pytest.fixture(scope="session")
def gguf() -> Path:
    """A real model: the nano one, or the one that MANNERS_TEST_GGUF names."""
    pytest.importorskip("xllamacpp", reason="no xllamacpp: make test")
    path = Path(os.environ.get("MANNERS_TEST_GGUF", NANO))
    if not path.is_file():
        pytest.skip(f"no {path.name}: git checkout -- models, or set MANNERS_TEST_GGUF")
    return path


@pytest.fixture
def spec(gguf: Path) -> EngineSpec:
    """An embedded engine on the real model."""
    return EngineSpec(name="nano", dialect="llama-server", driver="embedded", artefact=gguf)


def stat_of(pid: int) -> tuple[str, int] | None:
    """A process's state letter and its parent, or None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def children() -> set[int]:
    """The processes whose parent is this one; a zombie is one too."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return {pid for pid in pids if (stat := stat_of(pid)) and stat[1] == os.getpid()}


def lives(pid: int) -> bool:
    """Whether a process runs. One that is dead and not yet collected by init does not."""
    stat = stat_of(pid)
    return stat is not None and stat[0] != "Z"


def ends(pid: int) -> bool:
    """Wait for the end of a process that nothing but its parent's death can end; otherwise it is killed."""
    limit = time.monotonic() + PATIENCE
    while lives(pid):
        if time.monotonic() > limit:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.005)
    return True


@pytest.fixture(autouse=True)
def children_before() -> Iterator[set[int]]:
    """Every test leaves the children it found (another test's fork server is one): no process, no zombie."""
    before = children()
    yield before
    limit = time.monotonic() + PATIENCE
    while (left := children() - before) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not left, f"left behind: {left}"


async def until(engine: Engine, phase: Phase) -> EngineState:
    """Wait until the engine is in a phase."""
    state = engine.state
    async with asyncio.timeout(PATIENCE):
        while state.state is not phase:
            state = await engine.changed(state)
    return state
