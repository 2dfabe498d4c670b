"""llama.cpp's real server in a real child: it streams, it comes back, it goes away."""

import asyncio
import os
import signal
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import aiohttp
import pytest

from deploy.core.errors import StartFailed
from deploy.drivers import process
from deploy.drivers.embedded import EmbeddedEngine
from deploy.engine.engine import EngineState, Phase
from deploy.engine.probe import probe
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.engine.supervisor import RestartPolicy
from tests.deploy.conftest import children, lives, until
from tests.scale import PATIENCE

pytestmark = [pytest.mark.engine, pytest.mark.asyncio, pytest.mark.timeout(120)]
FAST = RestartPolicy(first_pause_s=0.05)


def made(spec: EngineSpec, folder: Path, **more: Any) -> EmbeddedEngine:
    """An engine. What does not end at SIGTERM is killed only when every test has given up."""
    return EmbeddedEngine(spec, state_dir=folder, **{"stop_grace_s": 10 * PATIENCE, **more})


async def brought_down(engine: EmbeddedEngine) -> None:
    """Stop it, without need of the grace's end, and check that nothing of it is left."""
    pid = engine.state.pid
    await asyncio.wait_for(engine.stop(), PATIENCE)
    assert engine.state.state is Phase.STOPPED
    assert engine.state.pid is None and engine.url is None
    assert pid is None or not lives(pid)


async def test_it_starts_and_streams_on_loopback_only(spec: EngineSpec, tmp_path: Path) -> None:
    states: list[EngineState] = []
    engine = made(spec, tmp_path, on_change=states.append)
    state = await engine.start()
    try:
        assert state is engine.state and state.url is not None
        assert (await probe(state.url, model=state.model or "", deadline_s=PATIENCE)).ok
        assert state.pid in children()
        assert process.listeners(int(state.url.rpartition(":")[2])) == [(ip_address("127.0.0.1"), ANY)]
        told = await engine.describe()
        assert (told["pid"], told["url"], told["spec"]) == (state.pid, state.url, spec_digest(spec))
        assert "deploy.drivers.llama_child" in told["argv"] and told["model_file"] == str(spec.artefact)
    finally:
        await brought_down(engine)
    phases = [s.state for s in states if s.pid or s.state is not Phase.STARTING]
    assert phases == [Phase.STARTING, Phase.READY, Phase.STOPPING, Phase.STOPPED]


async def test_a_killed_child_is_replaced(spec: EngineSpec, tmp_path: Path) -> None:
    states: list[EngineState] = []
    engine = made(spec, tmp_path, policy=FAST, on_change=states.append)
    first = await engine.start()
    try:
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        await until(engine, Phase.BACKING_OFF)
        second = await until(engine, Phase.READY)
        assert second.pid != first.pid and second.url != first.url
        assert second.restarts == 1
        assert second.last_error == "was killed by signal 9 while serving"
        assert (await probe(second.url or "", model="nano", deadline_s=PATIENCE)).ok
        assert all(s.url is None for s in states if s.state is not Phase.READY)
    finally:
        await brought_down(engine)


@pytest.mark.parametrize("break_it", ["truncated", "not a gguf"])
async def test_a_bad_model_is_one_clear_error(gguf: Path, tmp_path: Path, break_it: str) -> None:
    bad = tmp_path / "bad.gguf"
    data = gguf.read_bytes()
    bad.write_bytes(data[: len(data) * 3 // 4] if break_it == "truncated" else b"hello" * 100)
    states: list[EngineState] = []
    spec = EngineSpec(name="bad", dialect="llama-server", driver="embedded", artefact=bad)
    engine = made(spec, tmp_path, policy=FAST, on_change=states.append)
    with pytest.raises(StartFailed, match="refused to start") as caught:
        await engine.start()
    text = str(caught.value)
    assert ("not within the file bounds" if break_it == "truncated" else "invalid magic") in text
    assert any("failed to load model" in line for line in caught.value.log_tail)
    await asyncio.sleep(0.5)
    assert engine.state.state is Phase.FAILED
    assert len({s.pid for s in states if s.pid}) == 1
    await brought_down(engine)


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.003, 0.01, 0.03, 0.06, 0.1])
async def test_giving_up_a_start_leaves_nothing(
    spec: EngineSpec, tmp_path: Path, after_s: float, children_before: set[int]
) -> None:
    engine = made(spec, tmp_path)
    start = asyncio.create_task(engine.start())
    await asyncio.sleep(after_s)
    start.cancel()
    with suppress(asyncio.CancelledError):
        await start
    await brought_down(engine)
    assert children() == children_before


async def test_a_start_without_a_token_in_time_fails(
    spec: EngineSpec, tmp_path: Path, children_before: set[int]
) -> None:
    engine = made(spec, tmp_path, start_timeout_s=0.01)
    with pytest.raises(StartFailed, match=r"gave up after \d+\.\d s"):
        await engine.start()
    assert children() == children_before


CANARY = "Kanarienvogel"
BODIES = [
    b'{"messages":[{"role":"user","content":"CANARY"}],"max_tokens":4}',
    b'{"messages":[{"role":"user","content":"CANARY"}],"max_tokens":4,"stream":true}',
    b'{"messages":[{"role":"user","content":"CANARY" CANARY}]}',
    b'{"messages":"CANARY',
    b'{"messages":[{"role":"user","content":"x"}],"grammar":"# CANARY\\nCANARY ::= ("}',
    b'{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"CANARY"}}',
    b'{"messages":[{"role":"user","content":"x"}],"tool_choice":"CANARY"}',
    b'{"messages":[{"role":"user","content":"x"}],"reasoning_format":"CANARY"}',
    b'{"messages":[{"role":"user","content":"x"}],"max_tokens":2,"response_format":{"type":'
    b'"json_schema","json_schema":{"schema":{"type":"string","pattern":"CANARY(["}}}}',
]


async def test_the_log_holds_no_word_of_a_request(spec: EngineSpec, tmp_path: Path) -> None:
    engine = made(spec, tmp_path)
    url = (await engine.start()).url
    try:
        # Not pooled: the server closes the connection after a stream, and does not say so.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            for body in BODIES:
                data = body.replace(b"CANARY", CANARY.encode())
                async with session.post(f"{url}/v1/chat/completions", data=data) as response:
                    await response.read()
    finally:
        await brought_down(engine)
    log = engine.log_path.read_text()
    assert "bytes withheld" in log  # else the bodies above provoke nothing any more
    assert CANARY not in log


async def test_a_hanging_child_can_be_replaced(spec: EngineSpec, tmp_path: Path) -> None:
    engine = made(spec, tmp_path, policy=FAST)
    first = await engine.start()
    try:
        assert first.pid is not None
        os.kill(first.pid, signal.SIGSTOP)
        engine.restart_unhealthy("does not answer")
        assert engine.url is None
        second = await until(engine, Phase.READY)
        assert second.pid != first.pid
        assert second.last_error == "does not answer"
    finally:
        await brought_down(engine)
