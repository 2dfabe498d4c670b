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
from deploy.drivers.process import ProcessEngine
from deploy.engine.engine import Phase
from deploy.engine.probe import probe
from deploy.engine.spec import EngineSpec
from deploy.memory.guard import Guard
from deploy.memory.sizing import Memory
from tests.deploy.cgroup import Cgroup
from tests.scale import PATIENCE

EAT = "import signal, sys; eaten = b'x' * int(sys.argv[1]); signal.pause()"


async def main(folder: Path, v2: bool, limit: int, state: Path, gguf: Path) -> None:
    cgroup = Cgroup(folder, v2)
    live = EmbeddedEngine(
        EngineSpec(name="live", dialect="llama-server", driver="embedded", artefact=gguf), state_dir=state
    )
    up = await live.start()
    guard = Guard(lambda: Memory(limit, limit - cgroup.used()), every_s=0.05)
    before = guard.memory()
    assert before is not None and up.url is not None
    # Between the hard floor and the floor: the kernel would let it be, and the guard must not.
    size = before.available - (before.floor + before.hard_floor) // 2
    spec = EngineSpec(
        name="hungry", dialect="llama-server", driver="process", artefact=gguf,
        command=(sys.executable, "-c", EAT, str(size)),
    )  # fmt: skip
    candidate = ProcessEngine(spec, state_dir=state)
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
