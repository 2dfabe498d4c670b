"""The gateway's image: built by a real Docker Engine on a bare Debian, run as an operator would, and scraped."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.docker.daemon import Daemon
from tests.ops.asking import QUESTION, until
from tests.ops.conftest import IMAGE
from tests.ops.prometheus import binary, prometheus

pytestmark = [pytest.mark.ops, pytest.mark.timeout(1800)]

KEY = "a-key-of-these-tests"
AUTH = {"authorization": f"Bearer {KEY}"}
MOST_BYTES = 300 * 10**6
"""What the image may add to its base: llama.cpp's wheel is a third of it."""
HARDENED = {
    "ReadonlyRootfs": True,
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
    "Tmpfs": {"/tmp": "rw,nosuid,nodev,size=64m"},
    "PidsLimit": 512,
}
"""As compose.yaml has it."""


@pytest.fixture(scope="module")
def container(daemon: Daemon, image: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """Daemon's API and the id of a running gateway, hardened as in compose.yaml."""
    with daemon.api() as api:
        api.create_network("ops", driver="bridge")
        host = {**HARDENED, "NetworkMode": "ops"}
        often = {"Interval": 10**9, "StartPeriod": 10**6, "Retries": 100}  # its own check, each second
        body = {"Image": IMAGE, "Env": [f"MANNERS_API_KEYS={KEY}"], "HostConfig": host, "Healthcheck": often}
        made = api.create_container_from_config(body, "gateway")["Id"]
        api.start(made)
        yield api, made
    daemon.clear()


def test_the_image_is_small_and_nobodys_root(image: dict[str, Any]) -> None:
    assert image["Config"]["User"] == "10001:10001"
    assert image["Config"]["Healthcheck"]["Test"][0] == "CMD"
    assert image["Added"] < MOST_BYTES


async def test_it_answers_a_chat_is_healthy_and_is_scraped(
    container: tuple[Any, str], tmp_path: Path
) -> None:
    """With an embedded engine inside, behind a key, on a read-only root; Prometheus counts what was asked."""
    api, gateway = container
    binary("prometheus")
    public, admin = listeners(api, gateway)
    async with aiohttp.ClientSession() as client:
        await until(client, f"{public}/readyz", lambda: api.logs(gateway).decode())
        async with client.post(f"{public}/v1/chat/completions", json=QUESTION) as response:
            assert response.status == 401
        async with client.post(f"{public}/v1/chat/completions", json=QUESTION, headers=AUTH) as response:
            assert response.status == 200 and response.headers["x-manners-engine"] == "annie-nano"
            assert "Paris" in json.loads(await response.text())["choices"][0]["message"]["content"]
        async with client.get(f"http://{admin}/admin/status", headers=AUTH) as response:
            assert response.status == 401, "a caller's key is no operator's token"
    async with prometheus(tmp_path, admin) as watcher:
        await watcher.until(lambda: watcher.ask('manners_requests_total{model="annie",outcome="ok"} == 1'))
        assert [value for _, value in await watcher.ask('up{job="manners"}')] == [1]
    await healthy(api, gateway)


def listeners(api: Any, container: str) -> tuple[str, str]:
    """Where callers ask, and where operators do: a URL, and host:port."""
    address = api.inspect_container(container)["NetworkSettings"]["Networks"]["ops"]["IPAddress"]
    return f"http://{address}:8080", f"{address}:8081"


async def healthy(api: Any, container: str) -> None:
    """The image's own health check comes out well."""
    async with asyncio.timeout(60):
        while (seen := api.inspect_container(container)["State"]["Health"])["Status"] != "healthy":
            assert seen["Status"] == "starting", seen
            await asyncio.sleep(0.5)


def test_it_ends_in_order_when_it_is_told_to(container: tuple[Any, str]) -> None:
    api, gateway = container
    api.stop(gateway, timeout=30)
    assert api.inspect_container(gateway)["State"]["ExitCode"] == 0
