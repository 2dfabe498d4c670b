"""compose.yaml brought up for real: the gateway's image, an engine in a container, and one inside the gateway.

The engine's image is that of tests/docker: llama.cpp's real server. Prometheus and Grafana have no image here.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.images.pins import NO_IMAGE, compose_lock
from tests.docker import image as engine_image
from tests.docker.daemon import Daemon
from tests.ops.conftest import BASE, IMAGE
from tests.ops.facts import ROOT
from tests.ops.test_compose import COMPOSE, INSTALL
from tests.ports import free_port

pytestmark = [pytest.mark.ops, pytest.mark.timeout(1800)]

ENGINE = "manners-test-engine"
QUESTION = {"model": "annie", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
MOST_BYTES = 300 * 10**6
"""What the image may add to its base: llama.cpp's wheel is a third of it."""


@dataclass
class Up:
    """What runs: the API of its Docker Engine, the gateway's address, and the id of the engine's image."""

    api: Any
    url: str
    engine: str

    def named(self, part: str) -> str:
        """The id of a container by a part of its name."""
        return str(next(c["Id"] for c in self.api.containers(all=True) if part in c["Names"][0]))

    def said(self) -> str:
        """The gateway's log."""
        return str(self.api.logs(self.named("gateway")).decode())


@pytest.fixture(scope="module")
def up(daemon: Daemon, image: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The profile `cpu`, without what needs a registry."""
    if shutil.which("docker-compose") is None:
        pytest.skip(INSTALL)
    folder, port = tmp_path_factory.mktemp("home"), free_port()
    for name in ("state", "models"):
        (folder / name).mkdir()
    for name, reader in (("api_keys", 10001), ("grafana_password", 472)):
        (folder / name).write_text("a-key\n")
        (folder / name).chmod(0o400)
        os.chown(folder / name, reader, reader)
    given = {
        "COMPOSE_PROFILES": "cpu", "LLAMA_IMAGE_TAG": f"{ENGINE}:latest", "MANNERS_BASE_TAG": f"{BASE}:latest",
        "PROMETHEUS_IMAGE": NO_IMAGE, "GRAFANA_IMAGE": NO_IMAGE, "MANNERS_TAG": "latest", "MANNERS_HOME": folder,
        "MANNERS_SECRETS": folder, "MANNERS_PORT": port, "MANNERS_ADMIN_PORT": free_port(),
    }  # fmt: skip
    mine = folder / "cpu.env"
    kept = {
        key: value
        for key, value in variables(COMPOSE / "cpu.env").items()
        if key.removesuffix("_TAG") not in given
    }
    mine.write_text("".join(f"{key}={value}\n" for key, value in {**kept, **given}.items()), "utf-8")
    with daemon.api() as api:
        engine = engine_image.build(api, ENGINE)
        api.tag(IMAGE, "manners", "latest")
        lock = pinned(daemon, mine)
        assert variables(lock)["LLAMA_IMAGE"] == engine
        compose(daemon, lock, "up", "-d")
        try:
            yield Up(api, f"http://127.0.0.1:{port}", engine)
        finally:
            compose(daemon, lock, "down", "-v")


def variables(path: Path) -> dict[str, str]:
    """What an env file sets."""
    lines = [line.partition("=") for line in path.read_text("utf-8").splitlines()]
    return {name: value for name, equals, value in lines if equals and not name.startswith("#")}


def pinned(daemon: Daemon, path: Path) -> Path:
    """The lock of an env file, by what an operator types."""
    argv = [sys.executable, "-m", "app", "engine", "pin", "--compose", str(path)]
    environ = {"PATH": os.environ["PATH"], "DOCKER_HOST": daemon.url}
    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return compose_lock(path)


def compose(daemon: Daemon, variables: Path, *words: str) -> None:
    """One command of docker-compose."""
    argv = ["docker-compose", "-p", "manners-test", "--env-file", str(variables), *words]
    environ = {"PATH": os.environ["PATH"], "DOCKER_HOST": daemon.url}
    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


async def test_the_engine_in_a_container_answers_and_the_one_inside_takes_over(up: Up) -> None:
    """Through the published port, with the key of the secret; then the container is killed."""
    async with aiohttp.ClientSession(headers={"authorization": "Bearer a-key"}) as client:
        for _ in range(450):
            if await is_ready(client, up):
                break
            await asyncio.sleep(0.2)
        else:
            pytest.fail(up.said()[-3000:])
        assert await served(client, up, "llama") == "llama"
        up.api.kill(up.named("llama-server"))
        assert await served(client, up, "annie-nano") == "annie-nano"


async def is_ready(client: aiohttp.ClientSession, up: Up) -> bool:
    try:
        async with client.get(f"{up.url}/readyz") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def served(client: aiohttp.ClientSession, up: Up, wanted: str) -> str:
    """Which engine says Paris; asked again while it is another than `wanted`, which may be coming up."""
    for _ in range(60):
        async with client.post(f"{up.url}/v1/chat/completions", json=QUESTION) as response:
            assert response.status == 200, up.said()[-2000:]
            assert "Paris" in await response.text()
            if response.headers["x-manners-engine"] == wanted:
                break
        await asyncio.sleep(0.5)
    return response.headers["x-manners-engine"]


def test_the_image_is_small_and_nobodys_root(image: dict[str, Any]) -> None:
    assert image["Config"]["User"] == "10001:10001"
    assert image["Added"] < MOST_BYTES


def test_the_images_own_health_check_passes(up: Up, image: dict[str, Any]) -> None:
    command = image["Config"]["Healthcheck"]["Test"]
    ran = up.api.exec_create(up.named("gateway"), command[1:])
    said = up.api.exec_start(ran)
    assert command[0] == "CMD" and up.api.exec_inspect(ran)["ExitCode"] == 0, said


def test_the_engine_that_runs_is_the_image_that_was_pinned(up: Up) -> None:
    """It has no registry, so its pin is its id, and Compose takes that for a name."""
    container = up.api.inspect_container(up.named("llama-server"))
    assert container["Image"] == container["Config"]["Image"] == up.engine


def test_what_the_gateway_writes_belongs_to_it(up: Up) -> None:
    """The state folder was made by root; the one-shot service has given it away."""
    ownership = up.api.inspect_container(up.named("ownership"))
    assert ownership["State"]["ExitCode"] == 0
    mounts = up.api.inspect_container(up.named("gateway"))["Mounts"]
    state = next(Path(mount["Source"]) for mount in mounts if mount["Destination"].endswith("/state"))
    assert {path.stat().st_uid for path in (state, *state.iterdir())} == {10001}
