"""Two operators and three keys with limits, by command, under load, with a restart and a reload between."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.app.cli.test_serve import ASKED, Running, manners, serving, write
from tests.app.house import Scrape
from tests.scale import PATIENCE
from tests.scripted_engine import ScriptedEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

LIMITS = {"fast": (), "slow": ("--rpm", "5"), "poor": ("--budget", "40")}


async def said(*words: str, token: str | None = None) -> tuple[int, str]:
    """A command's exit code and output."""
    process = await manners(*words, **({"MANNERS_ADMIN_TOKEN": token} if token else {}))
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    return process.returncode or 0, (out or err).decode().strip()


async def crowd(running: Running, keys: dict[str, str], each: int) -> Counter[tuple[str, int]]:
    """So many requests with each key, all at once; how many got which status."""

    async def ask(name: str) -> tuple[str, int]:
        headers = {"authorization": f"Bearer {keys[name]}"}
        body = {**ASKED, "stream": False}
        async with running.client.post(
            running.url + "/v1/chat/completions", json=body, headers=headers
        ) as answer:
            await answer.read()
            return name, answer.status

    return Counter(await asyncio.gather(*(ask(name) for name in keys for _ in range(each))))


async def scrape(running: Running) -> Scrape:
    """The metrics."""
    async with running.client.get(running.admin + "/metrics") as answer:
        return Scrape.of(await answer.text())


async def test_keys_and_operators_through_load_reload_and_restart(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine:
        config = write(tmp_path, engine.url, read_seconds=20.0)
        file = ("--config", str(config))
        keys = {name: (await said("key", "add", name, *limits, *file))[1] for name, limits in LIMITS.items()}
        async with serving(config) as running:
            admin = ("--admin", running.admin, *file)
            watcher = (await said("operator", "add", "wanda", *admin))[1]
            boss = (await said("operator", "add", "bo", "--role", "administer", *admin))[1]
            first = await crowd(running, keys, 12)
            assert first["fast", 200] == 12
            assert 5 <= first["slow", 200] < 12 and first["slow", 429] > 0
            assert 0 < first["poor", 200] < 12
            write(tmp_path, engine.url, read_seconds=20.0, max_messages=100)
            assert (await said("reload", *admin, token=watcher))[0] == 77
            code, told = await said("reload", *admin, token=boss)
            assert (code, told) == (0, "reloaded; changed: gateway.max_messages")
            assert (await crowd(running, keys, 3))["fast", 200] == 3
            while (await crowd(running, {"poor": keys["poor"]}, 1))["poor", 200]:
                pass  # until its budget is spent
            counted = await scrape(running)
            tokens = {name: counted("manners_tokens_total", key=name, model="annie") for name in keys}
            assert tokens["fast"] > tokens["slow"] > 0
            assert counted("manners_key_limited_total", key="poor", code="key_budget_exceeded") > 0
            assert counted("manners_reloads_total", result="ok") == 1
            running.process.send_signal(signal.SIGTERM)
            assert (await running.ended())[0] == 0
        async with serving(config) as running:
            admin = ("--admin", running.admin, *file)
            after = await crowd(running, keys, 1)
            assert after["fast", 200] == 1
            assert after["poor", 429] == 1  # the budget is spent for good
            assert (await said("key", "revoke", "fast", *admin, token=boss))[0] == 0
            assert (await crowd(running, keys, 1))["fast", 401] == 1
            audit = (await said("audit", "--last", "50", *admin, token=watcher))[1]
            assert " bo " in audit and "configuration.reloaded" in audit
            assert "the chain holds" in audit
