"""Engines that ask for a GPU, in containers of a real Docker Engine.

Real are the Docker Engine, its device driver `nvidia`, and runc. Not real are the GPU and what NVIDIA's toolkit does in a
container (`nvidia_hook.py`), and what runs in it (`vllm.py`).
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.drivers.container import _ENVIRONMENT, SHM_BYTES, STACK_BYTES
from deploy.drivers.docker import DockerEngine
from deploy.drivers.docker_client import Docker
from deploy.engine.probe import probe
from deploy.engine.spec import EngineSpec
from deploy.engine.vllm import odd_flag
from tests.deploy.profiles import profile
from tests.docker import image, nvidia_hook
from tests.docker.conftest import MODELS
from tests.docker.daemon import MISSING, Daemon, own_daemon
from tests.scale import PATIENCE

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
HOOK = "nvidia-container-runtime-hook"
REPOSITORY = "manners-test-gpu-engine"
ARGS = tuple(profile("vllm-nvfp4-9b")["args"])


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stand-in lies; beside it, what it was called with."""
    path = tmp_path_factory.mktemp("nvidia") / HOOK
    path.write_text(f"#!{sys.executable}\n{Path(nvidia_hook.__file__).read_text('utf-8')}")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def daemon(hook: Path) -> Iterator[Daemon]:
    """A Docker Engine that takes its host for one with NVIDIA's toolkit."""
    if not Daemon.is_possible():
        pytest.skip(MISSING)
    with own_daemon(programs=hook.parent) as it:
        yield it


@pytest.fixture(scope="module")
def image_id(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with `vllm`, `python3` and `chown` on its path, and the same server as its entrypoint."""
    folder = tmp_path_factory.mktemp("image")
    program = folder / "vllm"
    program.write_text(f"#!{image.executable()}\nfrom tests.docker.vllm import main\n\nmain()\n")
    passwd = folder / "passwd"
    passwd.write_text("root:x:0:0::/:/bin/false\n")
    chown = Path("/usr/bin/chown")
    files = {
        **image.with_python("tests.docker.vllm, urllib.request, encodings.idna", more=[chown]),
        "/usr/bin/vllm": program,
        "/usr/bin/python3": image.executable(),
        "/usr/bin/chown": chown,
        "/etc/passwd": passwd,
    }
    with daemon.api() as api:
        return image.import_image(api, REPOSITORY, files, ["/usr/bin/vllm"])


@pytest.fixture
def spec(image_id: str) -> EngineSpec:
    """The shipped profile as an engine of the docker driver, with all GPUs, which is the default."""
    return EngineSpec(
        name="spark-nvfp4", dialect="vllm", driver="docker", artefact=MODELS / "annie-nano-nvfp4-hf", image=image_id,
        args=ARGS,
    )  # fmt: skip


def started(daemon: Daemon, part: str) -> dict[str, Any]:
    """What the program in a container said of how it was started."""
    said = _logs(daemon, part)
    line = next(line for line in said.splitlines() if line.startswith("started: "))
    found: dict[str, Any] = json.loads(line.removeprefix("started: "))
    return found


def _logs(daemon: Daemon, part: str) -> str:
    with daemon.api() as api:
        return str(api.logs(_named(api, part)).decode())


def _named(api: Any, part: str) -> str:
    return str(next(one["Id"] for one in api.containers(all=True) if part in one["Names"][0]))


def called(hook: Path) -> list[dict[str, Any]]:
    """Each call of the stand-in."""
    path = hook.with_name("called.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def flags(argv: list[str]) -> list[str]:
    """From the first flag of the profile."""
    return argv[argv.index(ARGS[0]) :]


async def test_the_docker_driver_gives_vllm_all_gpus_its_flags_and_nothing_else(
    spec: EngineSpec, client: Docker, daemon: Daemon, hook: Path, tmp_path: Path
) -> None:
    before = len(called(hook))
    engine = DockerEngine(spec, state_dir=tmp_path, docker=client)
    try:
        state = await engine.start()
        assert state.url is not None
        assert (await probe(state.url, model="spark-nvfp4", dialect="vllm", deadline_s=PATIENCE)).ok
        found = started(daemon, "spark-nvfp4")
        with daemon.api() as api:
            host = api.inspect_container(_named(api, "spark-nvfp4"))["HostConfig"]
    finally:
        await engine.stop()
        daemon.clear()
    (asked,) = host["DeviceRequests"]
    assert (asked["Count"], asked["Capabilities"], asked["DeviceIDs"]) == (-1, [["gpu"]], None)
    (call,) = called(hook)[before:]
    assert call["verb"] == ["prestart"] and call["env"][nvidia_hook.VISIBLE] == "all"
    assert call["argv"][-len(found["argv"]) :][1:] == found["argv"][1:], "docker-init stands before them"
    assert found["devices"] == found["opens"] == [nvidia_hook.DEVICE]
    assert found["argv"][1] == "serve" and flags(found["argv"]) == list(ARGS)
    assert odd_flag(found["argv"]) is None
    assert {**found["env"], **_ENVIRONMENT} == found["env"]
    assert found["writes"] == ["/cache", "/tmp"] and found["user"] != 0 and found["cwd"] == "/tmp"
    assert (found["shm"], found["stack"]) == (SHM_BYTES, STACK_BYTES)
