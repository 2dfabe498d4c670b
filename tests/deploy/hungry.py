"""Run inside a memory cgroup: a live engine, and a candidate that eats what is left.

    python -m tests.deploy.hungry FOLDER v1|v2 LIMIT STATE GGUF

Prints one line of JSON: what became of both, and whether the memory came back.
"""

import asyncio
import json
import sys
from pathlib import Path

from deploy.core.errors import StartFailed
from deploy.drivers.embedded import EmbeddedEngine
from deploy.engine.engine import Phase
from deploy.engine.probe import probe
from deploy.engine.run import RunEnd
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import SupervisedEngine
from deploy.memory.guard import Guard
from deploy.memory.sizing import Memory
from tests.deploy.cgroup import Cgroup
from tests.scale import PATIENCE

EAT = "import signal, sys; eaten = b'x' * int(sys.argv[1]); signal.pause()"


class Eater:
    """A process that takes `size` bytes and gives nothing."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def address(self) -> str | None:
        await asyncio.Event().wait()
        return None

    def up(self) -> None: ...

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> RunEnd:
        return RunEnd(f"ended with {await self._process.wait()}")

    def close(self) -> None: ...


class Hungry(SupervisedEngine):
    """An engine whose load takes `size` bytes."""

    def __init__(self, spec: EngineSpec, state_dir: Path, size: int) -> None:
        super().__init__(
            spec, state_dir=state_dir, on_change=None, policy=None, start_timeout_s=60, stop_grace_s=1
        )
        self._size = size

    def _prepare(self) -> None: ...

    async def _spawn(self) -> Eater:
        command = (sys.executable, "-c", EAT, str(self._size))
        return Eater(await asyncio.create_subprocess_exec(*command))


async def main(folder: Path, v2: bool, limit: int, state: Path, gguf: Path) -> None:
    cgroup = Cgroup(folder, v2)
    spec = EngineSpec(name="live", dialect="llama-server", driver="embedded", artefact=gguf)
    live = EmbeddedEngine(spec, state_dir=state)
    up = await live.start()
    guard = Guard(lambda: Memory(limit, limit - cgroup.used()), every_s=0.05)
    before = guard.memory()
    assert before is not None and up.url is not None
    # Between the hard floor and the floor: the kernel would let it be, and the guard must not.
    candidate = Hungry(spec, state, before.available - (before.floor + before.hard_floor) // 2)
    why = ""
    with guard.watching(candidate):
        try:
            await candidate.start()
        except StartFailed as error:
            why = error.why
    told = {
        "why": why,
        "candidate": candidate.state.state,
        "live": live.state.state is Phase.READY and live.state.pid == up.pid,
        "streams": (await probe(up.url, model="live", deadline_s=PATIENCE)).ok,
        "came_back": await guard.wait_back(before, deadline_s=PATIENCE),
        "kills": cgroup.kills(),
    }
    await live.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    group, version, size, where, model = sys.argv[1:]
    asyncio.run(main(Path(group), version == "v2", int(size), Path(where), Path(model)))
