"""A real redis-server, and gateways with their callers in processes of their own."""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.access.accounts import Account, Admission, unix_now
from app.access.shared import SharedLimits
from app.errors.tree import KeyLimited
from app.registry.values import KeyLimits
from tests.ports import free_port

PATIENT = "?socket_timeout=60"
SIX = {"requests": {"rpm": 6}, "slots": {"concurrency": 6}, "tokens": {"daily_budget": 600}}


class RedisServer:
    """A redis-server that keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("needs redis-server: apt-get install -y redis-server")
        self._folder, self.port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        argv = f"redis-server --port {self.port} --dir {self._folder} --bind 127.0.0.1".split()
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and any("Ready to accept" in line for line in self.process.stdout)

    def kill(self) -> None:
        with self.process:
            self.process.kill()


def account(limits: SharedLimits, name: str, **of_key: int) -> Account:
    """A key's account in one gateway."""
    made = Account(name, KeyLimits(**of_key), created="t1")
    made.shared = limits.account(made)
    return made


async def opened(its: Account, body: int, reply: int) -> Admission | tuple[str, int]:
    """A request that is let in; or why it is refused, and for how long."""
    begun = None
    try:
        begun = await its.shared.begin() if its.shared else its.begin(unix_now())
        reserved = its.shared.reserve(begun, body, reply) if its.shared else None
        await reserved if reserved else begun.reserve(body, reply, unix_now())
    except KeyLimited as refused:
        begun and begun.end(0, unix_now())
        return refused.code, (refused.retry_after or 0) // 4
    return begun


def gateway(url: str, start: Any, let_in: Any) -> None:
    """Ten callers who come at once, and stay until those of every gateway are in or refused; how many are in, by limit."""

    async def serve() -> None:
        await (limits := SharedLimits(url + PATIENT, lambda answers: None)).start()
        for name, of_key in SIX.items():
            its = account(limits, name, **of_key)
            await asyncio.to_thread(start.wait)
            asked = await asyncio.gather(*(opened(its, 0, 100) for _ in range(10)))
            let_in.put((name, sum(isinstance(one, Admission) for one in asked)))
            await asyncio.to_thread(start.wait)
        await limits.stop()

    asyncio.run(serve())
