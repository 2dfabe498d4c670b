"""Nothing outlives the gateway: not when it is killed, not while a model loads, in either loop."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.deploy.conftest import ends, lives
from tests.deploy.test_process import artefact as artefact
from tests.deploy.test_process import group_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

# A gateway in small: it starts an engine, says its child's pid, and waits to be killed.
# The same with a server whose children have left its group; says the number of the group.
OTHER = """
    import asyncio, sys
    from pathlib import Path
    from deploy.drivers.process import ProcessEngine
    from tests.deploy.test_process import SERVER, spec_of

    async def main():
        spec = spec_of(Path(sys.argv[1]), "has children of their own")
        state = await ProcessEngine(spec, state_dir=Path(sys.argv[2])).start()
        print(state.pid, flush=True)
        await asyncio.sleep(60)

    asyncio.run(main())
"""
# The same in the middle of a load that never ends, and that holds Python's lock: the model is a
# pipe into which nobody writes.
LOADING = """
    import asyncio, os, sys
    from pathlib import Path
    from deploy.drivers.embedded import spawn_llama
    from deploy.engine.log import LogFile

    async def main():
        log = LogFile(Path(sys.argv[2]) / "e.log")
        config = {"model": sys.argv[1], "alias": "e", "settings": {}}
        child = await spawn_llama(config, log, os.environ)
        while "xllamacpp" not in (Path(sys.argv[2]) / "e.log").read_text().partition("\\n")[2]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        print(child.pid, flush=True)
        await asyncio.sleep(60)

    asyncio.run(main())
"""


def pid_of_child(script: str, model: Path, state_dir: Path) -> tuple[subprocess.Popen[str], int]:
    """Run a small gateway until it has a child."""
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(model), str(state_dir)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def killed(parent: subprocess.Popen[str]) -> None:
    """End a process as the kernel would when memory runs out."""
    parent.kill()
    parent.wait()
    assert parent.stdout is not None
    parent.stdout.close()


@pytest.fixture
def endless(tmp_path: Path, gguf: Path) -> Path:
    """A model whose loading never ends (`gguf` is asked for its skips only)."""
    path = tmp_path / "endless.gguf"
    os.mkfifo(path)
    return path


def test_a_gateway_killed_during_a_load_leaves_no_engine(endless: Path, tmp_path: Path) -> None:
    parent, child = pid_of_child(LOADING, endless, tmp_path)
    assert lives(child)
    killed(parent)
    assert ends(child)


@pytest.mark.slow  # gateways and engines are started and killed: 1 s
@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
def test_a_killed_gateway_leaves_no_server_of_another_environment_and_no_worker(
    artefact: Path, tmp_path: Path, frozen: bool
) -> None:
    parent, leader = pid_of_child(OTHER, artefact, tmp_path)
    members = group_of(leader)
    assert len(members) == 3
    log = (tmp_path / "engines" / "other.log").read_text()
    members |= set(map(int, re.findall(r"^escaped (\d+)$", log, re.MULTILINE)))
    assert len(members) == 4
    if frozen:
        os.killpg(leader, signal.SIGSTOP)
    killed(parent)
    assert {pid for pid in members if not ends(pid)} == set()
