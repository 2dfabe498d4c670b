"""A gateway with real engines and callers who ask of it what every panel is to show."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from app.config.config import parse
from tests.app.house import GatewayFixture, eventually, run
from tests.app.promotion import stage
from tests.ops.facts import ROOT

MODELS = ROOT / "models"
_QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = [{"type": "function", "function": {"name": "search_memory", "description": "Search what the user told you before.", "parameters": _QUERY}}]  # fmt: skip
ASKED: tuple[dict[str, Any], ...] = (
    {"content": "Hello!"},
    {"content": "What is the capital of France?"},
    {"content": "What did Priya say about the trip?", "tools": TOOLS},
    {"content": "Good morning, Annie!", "stream": False},
    {"content": "Tell me about the sea.", "max_tokens": 48},
    {"content": "Hello!", "model": "hasty"},
)
"""One of each: words, a fact, a call, not streamed, a longer reply, and a model
whose template opens a thought though nobody asked for one."""


def tables(base: Path) -> dict[str, Any]:
    """annie with a stand-in, on weights that a test may spoil; one with bad manners; and for annie a
    candidate that is good and one that does not start."""
    shutil.copytree(MODELS / "annie-nano-q4_k_m", base / "weights")
    template = (MODELS / "annie-nano-hf" / "chat_template.jinja").read_text("utf-8")
    always = template.replace("enable_thinking is defined and enable_thinking is true", "true")
    assert always != template
    (base / "always.jinja").write_text(always, "utf-8")
    # One thread each: threads of several engines that wait for one another on two cores take all of both.
    args = ["--threads", "1"]
    engine = {"dialect": "llama-server", "driver": "embedded", "args": args}
    return {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(base / "state")},
        "engines": {
            "annie-q4": {**engine, "artefact": str(base / "weights")},
            "annie-f16": {**engine, "artefact": str(MODELS / "annie-nano-f16")},
            "hasty-q4": {
                **engine,
                "artefact": str(MODELS / "annie-nano-q4_k_m"),
                "args": [*args, "--chat-template-file", str(base / "always.jinja")],
            },
            "annie-fp4": {**engine, "artefact": str(MODELS / stage.FP4)},
            "annie-lame": {
                **engine,
                "artefact": str(MODELS / "annie-nano-f16"),
                "args": [*args, "--chat-template-file", str(base / "none.jinja")],
            },
        },
        "models": {"annie": {"live": "annie-q4", "fallback": ["annie-f16"]}, "hasty": {"live": "hasty-q4"}},
        **{name: stage.tables(base)[name] for name in ("gates", "promotion")},
    }


class Scene:
    """The gateway, and what is done to it."""

    def __init__(self, house: GatewayFixture, base: Path) -> None:
        self.house = house
        self.base = base
        self.operator = stage.Stage(house)
        self._weights = next((base / "weights").glob("*.gguf"))

    @property
    def target(self) -> str:
        """What Prometheus is to scrape."""
        return self.house.admin.removeprefix("http://")

    async def talk(self, rounds: int, callers: int = 2, pause: float = 0.0) -> list[int]:
        """Everything is asked `rounds` times by each caller, at once; the statuses they got."""
        asked = [self._caller(rounds, pause) for _ in range(callers)]
        return [status for statuses in await asyncio.gather(*asked) for status in statuses]

    async def _caller(self, rounds: int, pause: float) -> list[int]:
        statuses = []
        for number in range(rounds):
            for words in ASKED:
                fields = {"model": "annie", "stream": True, "max_tokens": 32, **words}
                body = {**fields, "messages": [{"role": "user", "content": fields.pop("content")}]}
                del body["content"]
                statuses.append((await self.house.ask(json.dumps(body).encode())).status)
                await asyncio.sleep(pause * (1 + number % 3))
        return statuses

    async def promote(self, engine: str) -> str:
        """annie is to be served by this engine; the result."""
        return str((await self.operator.promote(engine, "annie-q4"))["phase"])

    async def roll_back(self) -> str:
        """annie is to be served as before; the result."""
        return str((await self.operator.rollback())["phase"])

    async def under_load(
        self, deed: Coroutine[Any, Any, str], callers: int = 2, pause: float = 0.0
    ) -> tuple[str, set[int]]:
        """What comes of a deed while callers talk, and the statuses they get."""
        doing, statuses = asyncio.create_task(deed), set[int]()
        while not doing.done():
            statuses |= set(await self.talk(1, callers, pause))
        return await doing, statuses

    async def kill(self) -> list[int]:
        """annie's live engine dies while callers wait for its first token, and its weights are no weights any more,
        so that it stays dead; the statuses the callers get."""
        self._weights.rename(self.base / "kept")
        self._weights.write_bytes(b"no weights")
        pool = self.house.gateway.pool
        pid = pool.states()["annie-q4"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        talking = asyncio.create_task(self.talk(1))
        await eventually(lambda: pool.open("annie-q4") >= 2)
        os.kill(pid, signal.SIGKILL)
        return await talking

    def mend(self) -> None:
        """The weights are back; the gateway finds out by itself."""
        (self.base / "kept").replace(self._weights)


@asynccontextmanager
async def scene(base: Path) -> AsyncIterator[Scene]:
    """Every engine up, until the block ends."""
    nobody: Any = None  # real engines follow no script
    async with run(parse(tables(base), base), nobody) as house:
        pool = house.gateway.pool
        async with asyncio.timeout(60):
            while len(pool.states()) < 3 or not all(state.url for state in pool.states().values()):
                await asyncio.sleep(0.02)
        yield Scene(house, base)
