"""`manners serve` is killed with SIGKILL in every phase of a promotion, and comes up whole again.

The phase is read from the operation's own events. Afterwards one engine serves and streams, it is
the one that the registry names, no other process of the dead gateway is left, and the audit's chain holds.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.config import Config, load
from app.promotion.archive import FILE
from app.promotion.machine import PATHS
from app.promotion.phases import FINAL, Phase
from app.promotion.plan import Kind
from app.registry.reader import Reader
from tests.app.promotion.stage import signed, statement, tables

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-this-test"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
PHASES = [phase for phase in PATHS[Kind.PROMOTE] if phase not in FINAL]


def written(folder: Path) -> Path:
    """The configuration as a file. TOML takes JSON's strings, numbers and lists."""
    found = tables(folder / "state")
    found["promotion"]["bake_seconds"] = 1.0
    lines: list[str] = []
    for name, table in found.items():
        subtables = {k: v for k, v in table.items() if isinstance(v, dict)}
        for head, values in {name: table, **{f"{name}.{k}": v for k, v in subtables.items()}}.items():
            plain = {k: v for k, v in values.items() if not isinstance(v, dict)}
            lines += [f"[{head}]", *(f"{k} = {json.dumps(v)}" for k, v in plain.items())]
    path = folder / "manners.toml"
    path.write_text("\n".join([*lines, ""]))
    return path


class Gateway:
    """A gateway in a process of its own."""

    def __init__(
        self, process: asyncio.subprocess.Process, printed: str, client: aiohttp.ClientSession
    ) -> None:
        self.process = process
        self.client = client
        self.url, self.admin = (printed.split(word)[1].split()[0] for word in ("Public: ", "Operators: "))

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self.client.post(self.admin + path, headers=OPERATOR, **sent) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        async with self.client.get(self.admin + path, headers=OPERATOR) as response:
            return await response.json()

    async def until(self, operation: str, phase: str) -> Any:
        """The event that says that this phase was entered, or the operation if it ended first."""
        url = f"{self.admin}/admin/operations/{operation}/events"
        async with self.client.get(url, headers=OPERATOR) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    data = json.loads(line[6:])
                    if data["phase"] == phase or "id" in data:
                        return data
        raise AssertionError("the stream ended before the operation did")

    async def ask(self) -> tuple[int, str, bytes]:
        """One streamed request: status, engine, and what came."""
        body = {"model": "annie", "stream": True, "messages": [{"role": "user", "content": "Hello!"}]}
        async with self.client.post(f"{self.url}/v1/chat/completions", json=body) as response:
            return response.status, response.headers["x-manners-engine"], await response.read()

    async def kill(self) -> None:
        """Without a word."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def serving(config: Path) -> AsyncIterator[Gateway]:
    """Start it, and wait until it is ready."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MANNERS_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", "serve", "--config", str(config), cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={**clean, "MANNERS_ADMIN_TOKEN": TOKEN},
    )  # fmt: skip
    assert process.stdout is not None
    printed = b""
    async with asyncio.timeout(60):
        while b"\n\n  curl" not in printed:
            line = await process.stdout.readline()
            assert line, printed
            printed += line
    async with aiohttp.ClientSession() as client:
        try:
            yield Gateway(process, printed.decode(), client)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def begun(gateway: Gateway, config: Config) -> str:
    """A promotion of `large` that will go well if it is let."""
    _, report = await gateway.post("/admin/reports", signed(config, statement(config, "large", "small")))
    body = {"model": "annie", "engine": "large", "report": report["digest"]}
    status, operation = await gateway.post("/admin/promote", body)
    assert status == 202, operation
    return str(operation["id"])


def pids_of(gateway_pid: int) -> set[int]:
    """The children of a process."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(gateway_pid)], capture_output=True, text=True)
    return {int(pid) for pid in listed.stdout.split()}


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("phase", PHASES)
async def test_a_gateway_that_is_killed_comes_up_with_one_engine_that_serves(
    tmp_path: Path, phase: Phase
) -> None:
    path = written(tmp_path)
    config = load(path)
    async with serving(path) as first:
        operation = await begun(first, config)
        reached = await first.until(operation, phase)
        assert "id" not in reached, reached
        engines = pids_of(first.process.pid)
        await first.kill()
    async with asyncio.timeout(10):
        while any(is_there(pid) for pid in engines):
            await asyncio.sleep(0.01)
    async with serving(path) as second:
        ended = await second.until(operation, "")  # no step has that name: up to the end
        assert ended["done"] and ended["phase"] in ("failed", "succeeded"), ended
        live = (await second.get("/admin/status"))["models"]["annie"]["live"]
        assert live == ("large" if ended["phase"] == "succeeded" else "small")
        status, engine, said = await second.ask()
        assert (status, engine) == (200, live) and said.endswith(b"data: [DONE]\n\n")
        listed = (await second.get("/admin/engines"))["engines"]
        assert [one["name"] for one in listed if one["state"] == "ready"] == [live]
        assert len(pids_of(second.process.pid)) == 1
        assert (await second.get("/admin/audit"))["chain"] == {"ok": True}
    with Reader.at(tmp_path / "state" / FILE) as registry:
        registry.verify_chain()
        assert registry.operations(unfinished_only=True) == ()
