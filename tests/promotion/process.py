"""`manners serve` in a process of its own, which a test may kill."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gates.suite.load import FILES
from tests.promotion.forked import Forked, fork

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-this-test"
LOG = "stderr.txt"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}


def written(folder: Path, tables: Mapping[str, Any]) -> Path:
    """A configuration as a file. TOML takes JSON's strings, numbers and lists."""
    lines: list[str] = []
    for name, table in tables.items():
        subtables = {k: v for k, v in table.items() if isinstance(v, dict)}
        for head, values in {name: table, **{f"{name}.{k}": v for k, v in subtables.items()}}.items():
            plain = {k: v for k, v in values.items() if not isinstance(v, dict)}
            lines += [f"[{head}]", *(f"{k} = {json.dumps(v)}" for k, v in plain.items())]
    path = folder / "manners.toml"
    path.write_text("\n".join([*lines, ""]))
    return path


def short_suite(folder: Path) -> str:
    """annie-nano's suite, short enough that a canary is two questions."""
    head = (FILES.folder / "annie-nano.toml").read_text("utf-8")
    own = head.replace('name = "annie-nano"', 'name = "short"').replace("annie-nano.jsonl", "short.jsonl")
    own = own.replace(', "annie-nano.everyday.jsonl"', "")
    cases = (FILES.folder / "annie-nano.jsonl").read_text("utf-8").splitlines()
    named = [line for line in cases if json.loads(line).get("named")][:2]
    (folder / "short.toml").write_text(own)
    (folder / "short.jsonl").write_text("\n".join([*named, ""]))
    return str(folder / "short.toml")


class Gateway:
    """A gateway in a process of its own."""

    def __init__(
        self, process: asyncio.subprocess.Process | Forked, printed: str, client: aiohttp.ClientSession
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


async def start(config: Path) -> asyncio.subprocess.Process:
    """Begin to start one. It and its engines have the configuration's folder as their TMPDIR."""
    with (config.parent / LOG).open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", "serve", "--config", str(config), cwd=ROOT, stdout=subprocess.PIPE,
            stderr=log, env=environment(config),
        )  # fmt: skip


async def start_forked(config: Path) -> Forked:
    """The same, without what takes most of a start."""
    return await fork(config, environment(config), config.parent / LOG)


def environment(config: Path) -> dict[str, str]:
    """A gateway's, and so its engines'."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MANNERS_")}
    return {**clean, "MANNERS_ADMIN_TOKEN": TOKEN, "TMPDIR": str(config.parent)}


@asynccontextmanager
async def serving(
    config: Path, start: Callable[[Path], Awaitable[asyncio.subprocess.Process | Forked]] = start
) -> AsyncIterator[Gateway]:
    """Start it, and wait until it is ready."""
    process = await start(config)
    assert process.stdout is not None
    printed = b""
    async with asyncio.timeout(60):
        while b"\n\n  curl" not in printed:
            line = await process.stdout.readline()
            assert line, (config.parent / LOG).read_text("utf-8", "replace")[-2000:]
            printed += line
    async with aiohttp.ClientSession() as client:
        try:
            yield Gateway(process, printed.decode(), client)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


def processes_of(folder: Path) -> set[int]:
    """Every process that was started with this folder as its TMPDIR, whoever its parent is now."""
    mark, found = f"TMPDIR={folder}".encode(), set[int]()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
        except OSError:
            continue  # it has ended, or is another user's
    return {pid for pid in found if is_there(pid)}


def pids_of(gateway_pid: int) -> set[int]:
    """The children of a process."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(gateway_pid)], capture_output=True, text=True)
    return {int(pid) for pid in listed.stdout.split()}


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
