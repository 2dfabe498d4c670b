"""A server of another environment as a child: it streams, comes back, goes away, and leaves nothing."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.core.errors import StartFailed
from deploy.drivers import process
from deploy.drivers.child import Child, spawn
from deploy.drivers.process import ProcessEngine, argv
from deploy.engine.engine import EngineState, Phase
from deploy.engine.log import LogFile
from deploy.engine.spec import EngineSpec
from deploy.engine.supervisor import RestartPolicy
from gates.contracts.numerics import Numerics
from tests.deploy.conftest import ends, lives, until
from tests.scale import PATIENCE

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]
SERVER = Path(__file__).with_name("server.py")
FAST = RestartPolicy(first_pause_s=0.05)


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    """A finished folder, as far as a driver looks."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "artefact.json").write_text("{}")
    return folder


def spec_of(artefact: Path, behaviour: str = "", **more: Any) -> EngineSpec:
    """The server as an engine."""
    fields: dict[str, Any] = {
        "name": "other", "dialect": "vllm", "driver": "process", "artefact": artefact,
        "command": (sys.executable, str(SERVER)), "env": (("BEHAVIOUR", behaviour),),
    }  # fmt: skip
    return EngineSpec(**{**fields, **more})


def made(spec: EngineSpec, folder: Path, **more: Any) -> ProcessEngine:
    """An engine. What does not end at SIGTERM is killed only when every test has given up."""
    return ProcessEngine(spec, state_dir=folder, **{"stop_grace_s": 10 * PATIENCE, "policy": FAST, **more})


@asynccontextmanager
async def up(engine: ProcessEngine) -> AsyncIterator[EngineState]:
    """While it is up; then it is stopped, and nothing of it is left."""
    state = await engine.start()
    try:
        yield state
    finally:
        last = engine.state.pid
        await asyncio.wait_for(engine.stop(), PATIENCE)
    assert last is None or await gone(group_of(last))


def group_of(leader: int) -> set[int]:
    """The living processes of a group."""
    return {int(path.name) for path in process.members(leader) if lives(int(path.name))}


async def gone(pids: set[int]) -> bool:
    """Whether all of them end without our help."""
    return all([await asyncio.to_thread(ends, pid) for pid in pids])


def worker_of(engine: ProcessEngine) -> int:
    """The server's worker, which says its number at the start."""
    return int(re.findall(r"^worker (\d+)$", engine.log_path.read_text(), re.MULTILINE)[-1])


@pytest.mark.parametrize("said", ["", '{"pid": 1}'], ids=["nothing yet", "that its server runs"])
async def test_a_keeper_that_is_killed_alone_leaves_nobody_whatever_it_has_said(
    tmp_path: Path, said: str
) -> None:
    killed = (
        "import os, signal, subprocess, sys\n"
        "server = subprocess.Popen(['sleep', '10000'])\n"
        "os.write(int(sys.argv[4]), sys.argv[5].encode())\n"
        "print('server', server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    log = LogFile(tmp_path / "log")
    child = await spawn((sys.executable, "-c", killed), (said and f"{said}\n",), log, os.environ, Child)
    try:
        assert await asyncio.wait_for(child.exit_status(), PATIENCE) == -signal.SIGKILL
        (server,) = re.findall(r"^server (\d+)$", (tmp_path / "log").read_text(), re.MULTILINE)
        assert await gone({int(server)})
    finally:
        child.kill_group()
        child.close()


async def test_it_says_which_kernel_its_log_names(artefact: Path, tmp_path: Path) -> None:
    spec = spec_of(artefact, env=(("KERNEL", "MarlinNvFp4LinearKernel"),))
    engine = made(spec, tmp_path)
    assert (await engine.describe())["numerics"] == Numerics()
    async with up(engine):
        told = (await engine.describe())["numerics"]
    assert told == Numerics(kernel="MarlinNvFp4LinearKernel", scheme="W4A16")


@pytest.mark.slow  # processes are started and killed: 1 s
@pytest.mark.parametrize("who", ["group", "server", "worker"])
async def test_whoever_of_it_is_killed_the_rest_ends_and_another_comes(
    artefact: Path, tmp_path: Path, who: str
) -> None:
    engine = made(spec_of(artefact, "leaves its worker" if who != "worker" else ""), tmp_path)
    async with up(engine) as first:
        assert first.pid is not None
        members, worker = group_of(first.pid), worker_of(engine)
        assert len(members) == 3
        server = next(iter(members - {first.pid, worker}))
        os.kill({"group": first.pid, "server": server, "worker": worker}[who], signal.SIGKILL)
        await until(engine, Phase.BACKING_OFF)
        assert await gone(members)
        second = await until(engine, Phase.READY)
        assert second.restarts == 1
        how = "exited with status 1" if who == "worker" else "was killed by signal 9"
        assert second.last_error == f"{how} while serving"


@pytest.mark.parametrize("how", ["stop", "kill", "keeper", "server"])
async def test_what_has_left_for_a_session_of_its_own_ends_with_the_engine(
    artefact: Path, tmp_path: Path, how: str
) -> None:
    engine = made(spec_of(artefact, "has children of their own"), tmp_path)
    async with up(engine) as state:
        assert state.pid is not None
        (escaped,) = re.findall(r"^escaped (\d+)$", engine.log_path.read_text(), re.MULTILINE)
        assert lives(int(escaped)) and int(escaped) not in group_of(state.pid)
        if how == "kill":
            os.killpg(state.pid, signal.SIGKILL)
        elif how != "stop":
            server = next(iter(group_of(state.pid) - {state.pid, worker_of(engine)}))
            os.kill(state.pid if how == "keeper" else server, signal.SIGKILL)
        if how != "stop":
            assert await gone({int(escaped)})
            await until(engine, Phase.READY)
    escapes = re.findall(r"^escaped (\d+)$", engine.log_path.read_text(), re.MULTILINE)
    assert await gone({int(escaped), *map(int, escapes)})


async def test_a_server_that_ignores_sigterm_is_killed_with_its_worker(
    artefact: Path, tmp_path: Path
) -> None:
    engine = made(spec_of(artefact, "ignores SIGTERM"), tmp_path, stop_grace_s=0.3)
    state = await engine.start()
    assert state.pid is not None
    members = group_of(state.pid)
    await asyncio.wait_for(engine.stop(), PATIENCE)
    assert engine.state.state is Phase.STOPPED
    assert await gone(members)


async def test_a_missing_program_is_one_clear_error(artefact: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "bin" / "vllm")
    engine = made(spec_of(artefact, command=(missing, "serve")), tmp_path)
    with pytest.raises(StartFailed, match="No such file or directory") as caught:
        await engine.start()
    assert missing in str(caught.value) and "`command`" in str(caught.value)
    assert engine.state.restarts == 0


@pytest.mark.slow  # processes are started and killed: 1 s
async def test_a_stranger_who_streams_at_its_port_is_not_taken_for_it(
    artefact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with up(made(spec_of(artefact, name="stranger"), tmp_path)) as theirs:
        port = int((theirs.url or "").rpartition(":")[2])
        monkeypatch.setattr(process, "_free_port", lambda: port)
        with pytest.raises(StartFailed, match=f"its port {port} was taken by another process"):
            await made(spec_of(artefact, "hangs"), tmp_path).start()


async def test_a_server_that_anybody_can_reach_is_refused(artefact: Path, tmp_path: Path) -> None:
    engine = made(spec_of(artefact, "listens everywhere"), tmp_path)
    with pytest.raises(StartFailed, match="more than the loopback address"):
        await engine.start()


async def test_it_sees_no_secret_and_no_socket_of_ours(artefact: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "MANNERS_API_KEYS": "canary", "HF_TOKEN": "canary", "PYTHONPATH": "canary"}
    with socket.create_server(("127.0.0.1", 0)) as ours:
        ours.set_inheritable(True)
        inode = str(os.fstat(ours.fileno()).st_ino)
        async with up(made(spec_of(artefact), tmp_path, environ=environ)) as state:
            assert state.pid is not None
            assert inode not in process.sockets_of(state.pid)
            for pid in group_of(state.pid):
                assert b"canary" not in Path(f"/proc/{pid}/environ").read_bytes()


COMMANDS = {
    "vllm serve": (("/v/bin/vllm", "serve"), "vllm", (),
                   "/v/bin/vllm serve /m --served-model-name other --host 127.0.0.1 --port 5"),
    "vllm as a module": (("python", "-m", "x"), "vllm", ("--a",),
                         "python -m x --model /m --served-model-name other --host 127.0.0.1 --port 5 --a"),
    "sglang": (("python", "-m", "sglang.launch_server"), "sglang", ("--a",),
               "python -m sglang.launch_server --model-path /m --served-model-name other --host 127.0.0.1 --port 5 --a"),
    "any other": (("sglang",), "openai", ("--model-path={model}", "--host", "{host}", "--port", "{port}", "{name}"),
                  "sglang --model-path=/m --host 127.0.0.1 --port 5 other"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "dialect", "args", "line"), COMMANDS.values(), ids=COMMANDS.keys())
async def test_the_command_line_of_each_kind_of_server(
    artefact: Path, command: tuple[str, ...], dialect: Any, args: tuple[str, ...], line: str
) -> None:
    spec = spec_of(artefact, command=command, dialect=dialect, args=args)
    assert " ".join(argv(spec, "/m", 5)) == line
