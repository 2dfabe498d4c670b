"""A real vLLM of ours, by the process driver: promoted to from llama.cpp, killed, stood in for, rolled back."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Config, parse
from tests.app.promotion.stage import Stage, stage, tables
from tests.app.promotion.stage import quick as quick
from tests.conformance.conftest import installs
from tests.conformance.vllm_server import CPU, START_SECONDS, Install
from tests.deploy.conftest import stat_of
from tests.deploy.test_process import gone, group_of
from tests.scale import scaled

pytestmark = [
    pytest.mark.engine, pytest.mark.asyncio, pytest.mark.usefixtures("quick"), pytest.mark.timeout(7200),
]  # fmt: skip
PROMOTIONS = scaled(3, 10)
"""Each starts a vLLM, which is killed, and the one that comes in its place is killed, too."""
AWAITED = scaled(2, PROMOTIONS)
"""In so many of them the second kill waits until that one serves; else it hits it while it starts."""
ASKED = 4
"""Callers at the moment of a kill."""


def settings(state: Path, install: Install) -> Config:
    """`small` and `spare` are llama.cpp's, `own` is vLLM on the folder that both were made from."""
    found = tables(state, fallback=["spare"])
    kept = {name: table for name, table in found["engines"].items() if name in ("small", "spare")}
    own = {
        "dialect": "vllm", "driver": "process", "artefact": str(install.weights),
        "command": list(install.command),
        "args": ["--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "16", *install.args],
        "env": dict(install.environment), "gpu": "none" if install is CPU else "all",
    }  # fmt: skip
    return parse({**found, "engines": {**kept, "own": own}}, state)


async def in_time(true: Callable[[], Any]) -> None:
    """Wait for what takes a start of vLLM."""
    async with asyncio.timeout(START_SECONDS):
        while not true():
            await asyncio.sleep(0.05)


async def asked(it: Stage) -> set[str]:
    """Some callers at once: all are answered. The engines that did."""
    answers = await asyncio.gather(*(it.house.ask() for _ in range(ASKED)))
    assert [answer.raw for answer in answers if answer.status != 200] == []
    return {answer.headers["x-manners-engine"] for answer in answers}


def children_of(parent: int, group: set[int]) -> set[int]:
    """The members of a group that this one has started."""
    return {pid for pid in group if (stat := stat_of(pid)) and stat[1] == parent}


def servers_of(leader: int, group: set[int]) -> set[int]:
    """The members of a keeper's group that its guard has started: the guard has a group of its own."""
    return {pid for pid in group - {leader} if (stat := stat_of(pid)) and stat[1] not in group}


def line_of(pid: int) -> bytes:
    """A process's command line, or what it calls itself."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


class Server:
    """The processes of the vLLM that is there now. One that serves has one more that computes."""

    def __init__(self, it: Stage, *, serves: bool) -> None:
        leader = it.house.gateway.pool.states()["own"].pid
        assert leader is not None
        self.leader, self.all = leader, group_of(leader)
        (server,) = servers_of(leader, self.all)
        self.parts = [server, leader]
        if serves:
            (core,) = {
                pid for pid in children_of(server, self.all) if b"resource_tracker" not in line_of(pid)
            }
            self.parts.insert(1, core)

    async def kill(self, it: Stage, turn: int) -> None:
        """End its server, what computes, or their keeper: nothing of it stays, and another engine answers."""
        os.kill(self.parts[turn % len(self.parts)], signal.SIGKILL)
        await in_time(lambda: not it.house.gateway.pool.is_up("own"))
        assert await asked(it) == {"spare"}
        assert await gone(self.all)


async def next_of(it: Stage, last: Server) -> Server:
    """The vLLM that comes after one that was killed, as soon as its server is there."""
    states = it.house.gateway.pool.states

    def comes() -> bool:
        leader = states()["own"].pid
        return leader is not None and leader != last.leader and bool(servers_of(leader, group_of(leader)))

    await in_time(comes)
    return Server(it, serves=False)


@pytest.mark.parametrize("install", installs(), ids=lambda install: install.target)
async def test_a_vllm_of_ours_is_promoted_killed_and_rolled_back(tmp_path: Path, install: Install) -> None:
    if install.missing:
        pytest.skip(install.missing)
    async with stage(tmp_path, settings(tmp_path, install)) as it:
        it.patience = 2 * START_SECONDS
        pool = it.house.gateway.pool
        await in_time(lambda: pool.is_up("spare"))
        for turn in range(PROMOTIONS):
            assert (await it.promote("own", "small"))["phase"] == "succeeded"
            assert await asked(it) == {"own"}
            first = Server(it, serves=True)
            await first.kill(it, turn)
            second = await next_of(it, first)
            if turn < AWAITED:
                await in_time(lambda: pool.is_up("own"))
                assert await asked(it) == {"own"}
                second = Server(it, serves=True)
            await second.kill(it, turn + 1)
            third = pool.states()["own"].pid
            members = group_of(third) if third is not None else set()
            back = await it.rollback()
            assert (back["phase"], back["engine"]) == ("succeeded", "small")
            assert "own" not in pool.states()
            assert await gone(members)
            assert await asked(it) == {"small"}
        assert (await it.get("/admin/audit?newest=1"))["chain"] == {"ok": True}
