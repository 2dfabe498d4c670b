"""What Docker is told of an engine: the words of its server, and how little its container may do."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.core.errors import FlagError, SpecError, StartFailed, WeightsError
from deploy.drivers.container import (
    MODEL,
    Placement,
    argv,
    create_body,
)
from deploy.drivers.container_run import ContainerRun
from deploy.drivers.docker import DockerEngine
from deploy.drivers.docker_client import Docker
from deploy.engine.spec import EngineSpec
from tests.scale import PATIENCE

IMAGE = "vllm/vllm-openai@sha256:" + "0a" * 32
VLLM = EngineSpec(
    name="spark",
    dialect="vllm",
    driver="docker",
    image=IMAGE,
    artefact=Path("/models/annie-9b-nvfp4"),
    args=("--max-model-len", "32768"),
)
LLAMA = replace(VLLM, name="q4", dialect="llama-server", args=("--ctx-size", "8192"))
PLACING = Placement(
    instance="0123456789ab", artefact="sha256:aa", model="/models/annie-9b-nvfp4", inside=MODEL,
    cache="/state/caches/0a0a", user="1000:1000",
)  # fmt: skip


def test_each_server_is_started_by_its_own_words() -> None:
    assert argv(VLLM, MODEL) == (("vllm", "serve"), (
        "/model", "--served-model-name", "spark", "--host", "0.0.0.0", "--port", "8000", "--max-model-len", "32768",
    ))  # fmt: skip
    assert argv(LLAMA, "/model/m.gguf") == ((), (
        "--model", "/model/m.gguf", "--alias", "q4", "--host", "0.0.0.0", "--port", "8000", "--metrics",
        "--log-verbosity", "1", "--ctx-size", "8192",
    ))  # fmt: skip
    assert "Entrypoint" not in create_body(LLAMA, PLACING)


@pytest.mark.parametrize(
    ("spec", "flag"),
    [
        (VLLM, "--port=1"),
        (VLLM, "--api-key"),
        (VLLM, "--served-model-name"),
        (LLAMA, "-m"),
        (LLAMA, "--host"),
    ],
)
def test_what_the_driver_sets_cannot_be_given(spec: EngineSpec, flag: str) -> None:
    with pytest.raises(FlagError, match="set by the driver"):
        argv(replace(spec, args=(flag, "x")), MODEL)


def test_an_engine_of_another_dialect_cannot_be_started_and_a_gpu_can_be_withheld() -> None:
    with pytest.raises(SpecError, match="starts vllm and llama-server"):
        argv(replace(VLLM, dialect="openai"), MODEL)
    gpus = [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
    for spec, requests in ((VLLM, gpus), (replace(VLLM, gpu="none"), [])):
        assert create_body(spec, PLACING)["HostConfig"]["DeviceRequests"] == requests


@pytest.mark.parametrize(
    ("artefact", "why"), [("", "not a finished artefact"), ("annie.gguf", "a vllm container needs a folder")]
)
async def test_what_is_no_finished_folder_starts_no_vllm(tmp_path: Path, artefact: str, why: str) -> None:
    (tmp_path / "annie.gguf").touch()
    engine = DockerEngine(replace(VLLM, artefact=tmp_path / artefact), state_dir=tmp_path)
    with pytest.raises(WeightsError, match=why):
        await engine.start()


async def test_without_dockers_sdk_a_start_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "artefact.json").touch()
    monkeypatch.setitem(sys.modules, "docker.errors", None)
    docker = Docker("unix:///nothing")
    engine = DockerEngine(replace(VLLM, artefact=tmp_path), state_dir=tmp_path, docker=docker)
    with pytest.raises(StartFailed, match=r"pip install docker=="):
        await engine.start()
    assert engine.state.restarts == 0
    docker.close()


class Logging(Docker):
    """A daemon that has a container's log."""

    def __init__(self) -> None:
        super().__init__()
        self.until: list[float | None] = []

    async def logs(self, container: str, *, until: float | None = None, since: float | None = None) -> bytes:
        self.until.append(until)
        return f"log of {container}".encode()


async def test_what_a_container_logged_is_read_only_until_it_served(tmp_path: Path) -> None:
    daemon = Logging()
    run = ContainerRun(daemon, {"Id": "one"}, tmp_path / "log", adopted=False)
    assert await run.start_log() == "log of one"
    run.up()
    assert await run.start_log() == "log of one"
    before, after = daemon.until
    assert before is None and after is not None
    assert await ContainerRun(daemon, {"Id": "one"}, tmp_path / "log", adopted=True).start_log() == ""
    assert len(daemon.until) == 2


class Detached(Logging):
    """A daemon whose container runs, without its network, until it is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.signals: list[str] = []
        self.removed: list[str] = []

    @property
    def seen(self) -> dict[str, Any]:
        running = not self.signals
        state = {"Running": running, "Pid": 7, "ExitCode": 0 if running else 137}
        return {"Id": "one", "State": state, "NetworkSettings": {"Networks": {}}}

    async def inspect(self, container: str) -> dict[str, Any]:
        return self.seen

    def signal(self, container: str, signal: str) -> None:
        self.signals.append(signal)

    async def remove(self, container: str) -> None:
        self.removed.append(container)


async def test_a_container_without_an_address_is_ended_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.drivers.container_run.LOOK_SECONDS", 0.01)
    daemon = Detached()
    run = ContainerRun(daemon, daemon.seen, tmp_path / "log", adopted=True)
    async with asyncio.timeout(PATIENCE):
        assert await run.address() is None
        end = await run.wait()
    assert (end.why, end.refused) == ("has no address in the network manners", False)
    assert (daemon.signals, daemon.removed) == (["SIGKILL"], ["one"])
    crashed = ContainerRun(daemon, daemon.seen, tmp_path / "log", adopted=False)
    assert await crashed.address() is None and daemon.signals == ["SIGKILL"], (
        "one that has ended is not killed"
    )
