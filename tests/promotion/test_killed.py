"""`manners serve` is killed with SIGKILL in every phase of a promotion, and comes up whole again.

The phase is read from the operation's own events. Afterwards one engine serves and streams, it is
the one that the registry names, no other process of the dead gateway is left, and the audit's chain holds.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from app.config.config import Config, load
from app.promotion.repository import FILE
from app.promotion.state_machine import OperationPhase
from app.registry.registry import RegistryReader
from app.registry.values import OperationRow
from tests.app.promotion.stage import GOOD_WAY, MODELS, signed, statement, tables
from tests.deploy.test_process import SERVER
from tests.promotion.process import (
    Gateway,
    is_there,
    pids_of,
    processes_of,
    serving,
    short_suite,
    start_forked,
    written,
)
from tests.scale import PATIENCE

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(600)]

PHASES = [*GOOD_WAY[:-1], OperationPhase.SHIFTING]


async def killed_in(
    phase: OperationPhase, gateway: Gateway, config: Config, live: str, candidate: str
) -> str:
    """A promotion that would go well, whose gateway is killed once it is in this phase; nothing of it is left."""
    stated = statement(config, candidate, live)
    _, report = await gateway.post("/admin/reports", signed(config, stated))
    body = {"model": "annie", "engine": candidate, "report": report["digest"]}
    status, operation = await gateway.post("/admin/promote", body)
    assert status == 202, (phase, operation)
    reached = await gateway.until(operation["id"], phase)
    assert "id" not in reached, (phase, reached)
    engines = pids_of(gateway.process.pid)
    await gateway.kill()
    async with asyncio.timeout(PATIENCE):
        while any(is_there(pid) for pid in engines):
            await asyncio.sleep(0.01)
    return str(operation["id"])


async def test_a_gateway_that_is_killed_comes_up_with_one_engine_that_serves(tmp_path: Path) -> None:
    """In one phase after the other: the gateway that came up whole is the next that is killed."""
    wanted = tables(tmp_path / "state")
    wanted["gates"]["suite"] = short_suite(tmp_path)
    wanted["promotion"] |= {"bake_seconds": 1.0, "shift_weights": [20, 50], "shift_seconds": 0.5}
    path = written(tmp_path, wanted)
    config = load(path)
    live, other, ends = "small", "large", set[str]()
    async with serving(path, start_forked) as gateway:
        operation = await killed_in(PHASES[0], gateway, config, live, other)
    for phase, following in zip(PHASES, [*PHASES[1:], None], strict=True):
        async with serving(path, start_forked) as gateway:
            ended = await gateway.until(operation, "")  # no step has that name: up to the end
            assert ended["done"] and ended["phase"] in ("failed", "succeeded"), (phase, ended)
            ends.add(ended["phase"])
            if ended["phase"] == "succeeded":
                live, other = other, live
            assert (await gateway.get("/admin/status"))["models"]["annie"]["live"] == live, phase
            status, engine, said = await gateway.ask()
            assert (status, engine) == (200, live) and said.endswith(b"data: [DONE]\n\n"), phase
            listed = (await gateway.get("/admin/engines"))["engines"]
            assert [one["name"] for one in listed if one["state"] == "ready"] == [live], phase
            assert len(pids_of(gateway.process.pid)) == 1, phase
            assert (await gateway.get("/admin/audit"))["chain"] == {"ok": True}, phase
            with RegistryReader(tmp_path / "state" / FILE) as registry:
                registry.verify_chain()
                assert registry.all(OperationRow, done=False) == (), phase
            if following is not None:
                operation = await killed_in(following, gateway, config, live, other)
    assert ends == {"failed", "succeeded"}


async def test_a_server_of_another_environment_goes_with_the_gateway_and_comes_back_with_the_next(
    tmp_path: Path,
) -> None:
    """Driver process: its worker, which nobody else would end, holds memory that the next one needs."""
    wanted = tables(tmp_path / "state")
    wanted["promotion"]["bake_seconds"] = 0.1
    wanted["engines"]["other"] = {
        "dialect": "vllm", "driver": "process", "artefact": str(MODELS / "annie-nano-hf"), "gpu": "none",
        "command": [sys.executable, str(SERVER)],
        "env": {"VLLM_CPU_KVCACHE_SPACE": "0", "BEHAVIOUR": "leaves its worker"},
    }  # fmt: skip
    wanted["models"]["annie"]["live"] = "other"
    path = written(tmp_path, wanted)
    async with serving(path) as first:
        status, engine, _ = await first.ask()
        assert (status, engine) == (200, "other")
        left = processes_of(tmp_path) - {first.process.pid}
        assert len(left) == 4, "a keeper, its guard, a server, and its worker"
        await first.kill()
    async with asyncio.timeout(PATIENCE):
        while any(is_there(pid) for pid in left):
            await asyncio.sleep(0.01)
    async with serving(path) as second:
        status, engine, _ = await second.ask()
        assert (status, engine) == (200, "other")
    assert processes_of(tmp_path) == set()
