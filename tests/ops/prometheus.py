"""A real Prometheus on the committed configuration, with shorter intervals: minutes become seconds."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.ops.facts import ALERTS, PROMETHEUS, RECORDING
from tests.ports import free_port

INSTALL = "needs prometheus: apt-get install -y --no-install-recommends prometheus"
GRAFANA = {"$__rate_interval": "30s", "$model": ".*", "$engine": ".*", "$instance": ".*"}
"""What Grafana puts in for its own variables."""

Sample = tuple[dict[str, str], float]


def binary(name: str) -> str:
    """The path of `prometheus` or `promtool`; skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(INSTALL)
    return found


def plain(expr: str, step: float = 1.0) -> str:
    """A panel's expression as Prometheus takes it, asked for every `step` seconds."""
    for variable, value in {**GRAFANA, "$__interval": f"{step * 1000:.0f}ms"}.items():
        expr = expr.replace(variable, value)
    return expr


def derive(folder: Path, target: str, scrape: str = "1s", hold: str = "1s") -> Path:
    """The committed configuration for one target, scraped every `scrape`; alerts hold for `hold`."""
    text = (PROMETHEUS / "prometheus.yml").read_text("utf-8")
    for pattern, value in (
        (r"(?<=scrape_interval: )\w+", scrape),
        (r"(?<=scrape_timeout: )\w+", "1s"),
        (r"(?<=evaluation_interval: )\w+", scrape),
        (r"(?<=targets: \[)gateway:8081", target),
    ):
        text, count = re.subn(pattern, value, text)
        assert count == 1, pattern
    (folder / "rules").mkdir()
    for rules in (RECORDING, ALERTS):
        held = re.sub(r"(?<= for: )[1-9]\w*", hold, rules.read_text("utf-8"))
        (folder / "rules" / rules.name).write_text(held, "utf-8")
    path = folder / "prometheus.yml"
    path.write_text(text, "utf-8")
    return path


class Prometheus:
    """A running one."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self.url = url
        self._client = client

    async def get(self, path: str, **params: Any) -> Any:
        """`data` of one call of its API."""
        async with self._client.get(f"{self.url}/api/v1/{path}", params=params) as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        return answer["data"]

    async def ask(self, expr: str) -> list[Sample]:
        """The labels and values of an expression now."""
        found = (await self.get("query", query=plain(expr)))["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in found]

    async def firing(self) -> set[str]:
        """The names of alerts that fire."""
        alerts = (await self.get("alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    async def until_told(self, alert: str, fires: bool = True) -> None:
        """Wait until this alert fires, or fires no more."""

        async def so() -> bool:
            return (alert in await self.firing()) is fires

        await self.until(so)

    async def until(self, true: Any, seconds: float = 60) -> None:
        """Wait until an awaitable question is answered with yes."""
        async with asyncio.timeout(seconds):
            while not await true():
                await asyncio.sleep(0.2)


@asynccontextmanager
async def prometheus(folder: Path, target: str, **settings: Any) -> AsyncIterator[Prometheus]:
    """Up and ready until the block ends. `target` is the gateway's operators' listener, host:port."""
    program, config = binary("prometheus"), derive(folder, target, **settings)
    port = free_port()
    argv = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program, *argv, stdout=log, stderr=log)
    try:
        async with aiohttp.ClientSession() as client:
            running = Prometheus(f"http://127.0.0.1:{port}", client)
            await running.until(lambda: _ready(running, process, folder), 30)
            yield running
    finally:
        process.terminate()
        await process.wait()


async def _ready(running: Prometheus, process: asyncio.subprocess.Process, folder: Path) -> bool:
    assert process.returncode is None, (folder / "prometheus.log").read_text("utf-8")[-2000:]
    try:
        async with running._client.get(f"{running.url}/-/ready") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False
