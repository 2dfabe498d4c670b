"""`manners serve` as a process: how it starts, how it says no, and how it ends."""

import asyncio
import json
import os
import shlex
import signal
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.config import running
from tests.app.house import HELLO, NEVER, frames, said
from tests.ports import free_port
from tests.promotion.forked import Forked, fork
from tests.scale import PATIENCE
from tests.script import DONE, Hang, Head, Say, Until, finish, text
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[3]
ASKED = {"model": "annie", "messages": HELLO, "stream": True}


def write(folder: Path, url: str, **gateway: Any) -> Path:
    """A configuration with one engine at this address. Its deadlines outlast commands on a busy machine, so they end nothing."""
    table: dict[str, Any] = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": "state"}
    table |= {"lame_duck": 0, "drain_seconds": 10 * PATIENCE, **gateway}
    lines = ["[gateway]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    lines += ["[engines.far]", 'dialect = "llama-server"', 'driver = "url"', f'url = "{url}"']
    path = folder / "manners.toml"
    lines += ["[models.annie]", 'live = "far"', "[models.annie.timeouts]"]
    lines += [f"{name} = {seconds}" for name, seconds in NEVER.items()]
    path.write_text("\n".join([*lines, ""]))
    return path


def environment(**more: str) -> dict[str, str]:
    """Of the command: no settings from outside."""
    return {k: v for k, v in os.environ.items() if not k.startswith("MANNERS_")} | more


async def manners(*args: str, **environ: str) -> asyncio.subprocess.Process:
    """The command, with an environment of its own."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app",
        *args,
        cwd=ROOT,
        env=environment(**environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


class Running:
    """A gateway in a process of its own, ready."""

    def __init__(
        self, process: asyncio.subprocess.Process | Forked, client: aiohttp.ClientSession, printed: str
    ) -> None:
        self.process = process
        self.client = client
        self.printed = printed
        self.url, self.admin = (printed.split(word)[1].split()[0] for word in ("Public: ", "Operators: "))

    def ask(self) -> Any:
        """A streamed request: `async with running.ask() as response`."""
        return self.client.post(self.url + "/v1/chat/completions", json=ASKED)

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and body of a path of the public listener."""
        async with self.client.get(self.url + path) as response:
            return response.status, await response.json()

    async def ended(self) -> tuple[int, str]:
        """Its exit code and its log, long before the end of the drain that `write` allows."""
        async with asyncio.timeout(PATIENCE):
            _, log = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, log.decode()


@asynccontextmanager
async def serving(
    config: Path, environ: Mapping[str, str] | None = None, is_command: bool = False
) -> AsyncIterator[Running]:
    """Start it and wait until it says that it is ready: the command itself, or forked, which costs a quarter."""
    process: asyncio.subprocess.Process | Forked
    if is_command:
        process = await manners("serve", "--config", str(config), **environ or {})
    else:
        process = await fork(config, environment(**environ or {}))
    assert process.stdout is not None
    printed = b""
    try:
        async with asyncio.timeout(PATIENCE):
            while b"\n\n  curl" not in printed or not printed.endswith(b"\n\n"):
                line = await process.stdout.readline()
                assert line, printed
                printed += line
        async with aiohttp.ClientSession() as client:
            yield Running(process, client, printed.decode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def test_a_sigterm_lets_running_streams_end(tmp_path: Path) -> None:
    """Not ready any more, nothing new is taken, what runs comes to its end, and the code is 0."""
    go = asyncio.Event()
    async with ScriptedEngine() as engine, serving(write(tmp_path, engine.url), is_command=True) as running:
        assert await running.get("/readyz") == (200, {"status": "ready", "ungated": ["annie"]})
        engine.play(Head(), Say(text("One")), Until(go), Say(text(" two")), Say(finish()), Say(DONE))
        async with running.ask() as response:
            came = await response.content.readany()
            running.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                while (await running.get("/readyz"))[0] == 200:
                    await asyncio.sleep(0.01)
            assert await running.get("/readyz") == (503, {"status": "draining"})
            async with running.ask() as refused:
                assert refused.status == 503
                assert (await refused.json())["error"]["code"] == "draining"
                assert refused.headers["retry-after"] == "5"
            go.set()
            stream = frames(came + await response.read())
        assert said(stream) == "One two"
        assert stream[-1] == "[DONE]"
        code, log = await running.ended()
        assert code == 0
        assert "Traceback" not in log
        outcomes = [json.loads(line).get("outcome") for line in log.splitlines()]
        assert [o for o in outcomes if o] == ["busy", "ok"]
        assert len(engine.requests) == 1


@pytest.mark.slow  # a gateway's start: 1 s
async def test_after_sigterm_it_is_not_ready_and_serves_for_a_while(tmp_path: Path) -> None:
    """A load balancer has time to look elsewhere. A second signal ends that time."""
    async with ScriptedEngine() as engine, serving(write(tmp_path, engine.url, lame_duck=500)) as running:
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while await running.get("/readyz") != (503, {"status": "draining"}):
                await asyncio.sleep(0.01)
        engine.play(Head(), Say(text("One")), Say(finish()), Say(DONE))
        async with running.ask() as response:
            assert response.status == 200 and said(frames(await response.read()))
        running.process.send_signal(signal.SIGTERM)
        code, log = await running.ended()
    assert code == 0 and "lame_duck" in log


async def test_health_checks_of_load_balancers_are_answered(tmp_path: Path) -> None:
    """HEAD without a body, and HTTP/1.0 without a Host, which HAProxy sends by default."""
    head = b"HEAD /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close"
    async with ScriptedEngine() as engine, serving(write(tmp_path, engine.url)) as running:
        port = int(running.url.rpartition(":")[2])
        for asked in (head, b"GET /healthz HTTP/1.0", b"HEAD /healthz HTTP/1.0"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(asked + b"\r\n\r\n")
            async with asyncio.timeout(PATIENCE):
                status, _, rest = (await reader.read()).partition(b"\r\n")
            writer.close()
            assert status.split()[1] == b"200"
            assert bool(rest.partition(b"\r\n\r\n")[2]) == asked.startswith(b"GET")


@pytest.mark.slow  # a gateway's start: 1 s
async def test_draining_has_an_end(tmp_path: Path) -> None:
    """A stream that never ends does not keep the gateway up; its caller and the engine learn of it."""
    async with ScriptedEngine() as engine, serving(write(tmp_path, engine.url, drain_seconds=0.3)) as running:
        engine.play(Head(), Say(text("One")), Hang())
        async with running.ask() as response:
            came = await response.content.readany()
            running.process.send_signal(signal.SIGTERM)
            *chunks, last = frames(came + await response.read())
            code, log = await running.ended()
        assert (said(chunks), last["error"]["code"]) == ("One", "draining")
        assert code == 0
        assert "Traceback" not in log
        async with asyncio.timeout(PATIENCE):
            await (await engine.request()).gone.wait()


async def test_it_says_where_it_listens_and_how_to_try_it(tmp_path: Path) -> None:
    """The printed curl line works as it stands; the operators' token is for its owner only."""
    async with ScriptedEngine() as engine, serving(write(tmp_path, engine.url)) as running:
        token = tmp_path / "state" / "admin.token"
        assert str(token) in running.printed
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        headers = {"authorization": f"Bearer {token.read_text().strip()}"}
        async with running.client.get(running.admin + "/admin/status", headers=headers) as response:
            assert (await response.json())["ready"] is True
        printed = shlex.split(running.printed[running.printed.index("curl") :].replace("\\\n", " "))
        assert printed[:2] == ["curl", "-N"]
        url, _, header, _, body = printed[2:]
        name, _, value = header.partition(": ")
        async with running.client.post(url, data=body, headers={name: value}) as response:
            assert said(frames(await response.read())) == "Hello there."


async def hang_up(running: Running, event: str) -> None:
    """Send SIGHUP, and wait for this line of the log."""
    running.process.send_signal(signal.SIGHUP)
    assert running.process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        while json.loads(await running.process.stderr.readline())["event"] != event:
            pass


async def test_a_sighup_reloads_and_ends_nothing(tmp_path: Path) -> None:
    """A stream goes on; a file that is wrong, or needs a restart, changes nothing and is told; then it is mended."""
    go = asyncio.Event()
    async with ScriptedEngine() as engine:
        config = write(tmp_path, engine.url)
        async with serving(config) as running:
            engine.play(Head(), Say(text("One")), Until(go), Say(text(" two")), Say(finish()), Say(DONE))
            async with running.ask() as response:
                came = await response.content.readany()
                config.write_text("[gateway\n")
                await hang_up(running, "reload_refused")
                write(tmp_path, engine.url, listen="127.0.0.1:9")
                await hang_up(running, "reload_refused")
                write(tmp_path, engine.url, max_body_bytes=1024)
                await hang_up(running, "reloaded")
                go.set()
                assert said(frames(came + await response.read())) == "One two"
            large = json.dumps(ASKED | {"user": "x" * 2000}).encode()
            async with running.client.post(
                running.url + "/v1/chat/completions", data=large, headers={"content-type": "application/json"}
            ) as too_large:
                assert too_large.status == 413
            assert running.process.returncode is None


async def test_a_gguf_is_served_by_one_line_and_found_by_the_other_commands(tmp_path: Path) -> None:
    """By real llama.cpp; `chat` and `status` name no address."""
    home = {"HOME": str(tmp_path)}
    port = free_port()
    model = ROOT / "models/annie-nano-q4_k_m/annie-nano-q4_k_m.gguf"
    process = await manners("serve", str(model), "--name", "mine", "--port", str(port), **home)
    assert process.stdout is not None
    printed = b""
    try:
        async with asyncio.timeout(PATIENCE):
            while b"Ready:" not in printed:
                line = await process.stdout.readline()
                assert line, printed
                printed += line
        for command, shown in (("chat", b"mine "), ("status", b" mine ")):
            asking = await manners(command, *(["Hello!"] if command == "chat" else []), **home)
            out, err = await asking.communicate()
            assert (asking.returncode, err) == (0, b"") and shown in out
        assert (found := running.find(tmp_path / ".local/state/manners")) and found.public.endswith(str(port))
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert running.find(tmp_path / ".local/state/manners") is None
