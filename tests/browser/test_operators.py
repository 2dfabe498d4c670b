"""Two operators and three keys with limits, by command, console and metrics, under load, with a reload and a restart between."""

import asyncio
import json
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.app.cli.test_serve import ASKED, Running, manners, serving, write
from tests.app.house import Scrape, frames
from tests.browser.chromium import BINARY, INSTALL, Page, chromium
from tests.browser.test_console import says, sign_in
from tests.scale import PATIENCE
from tests.script import DONE, Head, Say, Until, finish, reply, text
from tests.scripted_engine import ScriptedEngine

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(BINARY is None, reason=INSTALL),
]

RPM = 5
LIMITS = {
    "pair": ("--concurrency", "2"),
    "slow": ("--rpm", str(RPM)),
    "poor": ("--tpm", "1000", "--budget", "60000"),
}
LONG = 50_000
"""Tokens of one reply: of tokens a minute it takes 50 minutes, so that no slow machine outlives the limit."""


class Site:
    """A gateway's state folder, its commands, and its callers, over restarts."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.secrets: dict[str, str] = {}
        self.begun = time.monotonic()
        self.ended: Counter[tuple[str, str]] = Counter()

    async def manners(self, *words: str, by: str = "") -> tuple[int, str]:
        """A command of this operator, or of whoever has the state folder; its exit code and output."""
        who = {"MANNERS_ADMIN_TOKEN": self.secrets[by]} if by else {}
        process = await manners(*words, "--config", str(self.config), **who)
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        return process.returncode or 0, (out or err).decode().strip()

    async def add(self, kind: str, name: str, *more: str, by: str = "") -> None:
        """Make a key or an operator, and keep its secret."""
        code, self.secrets[name] = await self.manners(kind, "add", name, *more, by=by)
        assert code == 0, self.secrets[name]

    async def ask(self, running: Running, key: str, **more: Any) -> str:
        """One request: `ok`, or the code of the refusal."""
        headers = {"authorization": f"Bearer {self.secrets.get(key, key)}"}
        url, body = running.url + "/v1/chat/completions", {**ASKED, **more}
        async with running.client.post(url, json=body, headers=headers) as answer:
            raw = await answer.read()
        code = "ok" if answer.status == 200 else str(json.loads(raw)["error"]["code"])
        self.ended[key, code] += 1
        return code

    async def crowd(self, running: Running, *keys: str, each: int = 8) -> None:
        """So many requests with each key, all at once."""
        await asyncio.gather(*(self.ask(running, key) for key in keys for _ in range(each)))

    def check_rpm(self) -> None:
        """From the first request on, over reload and restart, `slow` was never let in more often than its limit says."""
        most = RPM * (1 + (time.monotonic() - self.begun) / 60)
        assert RPM <= self.ended["slow", "ok"] <= most
        assert self.ended["slow", "key_rpm_exceeded"] > 0


async def scrape(running: Running) -> Scrape:
    """The metrics."""
    async with running.client.get(running.admin + "/metrics") as answer:
        return Scrape.of(await answer.text())


async def stop(running: Running) -> list[dict[str, Any]]:
    """End it in order; its log."""
    running.process.send_signal(signal.SIGTERM)
    code, log = await running.ended()
    assert code == 0
    return [json.loads(line) for line in log.splitlines()]


async def under_load(site: Site, running: Running, engine: ScriptedEngine) -> None:
    """Two streams of one key stay open while the others crowd in and the configuration is read again."""
    go, headers = asyncio.Event(), {"authorization": f"Bearer {site.secrets['pair']}"}
    for _ in range(2):
        engine.play(Head(), Say(text("One")), Until(go), Say(text(" two")), Say(finish()), Say(DONE))
    async with AsyncExitStack() as stack:
        streams: list[aiohttp.ClientResponse] = []
        for _ in range(2):
            asked = running.client.post(running.url + "/v1/chat/completions", json=ASKED, headers=headers)
            streams.append(await stack.enter_async_context(asked))
        assert await site.ask(running, "pair") == "key_concurrency_exceeded"
        await site.crowd(running, "slow")
        code, told = await site.manners("reload", "--admin", running.admin, by="wanda")
        assert code == 77 and "role_administer_required" in told
        write(site.config.parent, engine.url, max_messages=100)
        said = await site.manners("reload", "--admin", running.admin, by="bo")
        assert said == (0, "reloaded; changed: gateway.max_messages")
        assert await site.ask(running, "pair") == "key_concurrency_exceeded"
        await site.crowd(running, "slow")
        go.set()
        for stream in streams:
            assert frames(await stream.read())[-1] == "[DONE]"
    assert await site.ask(running, "pair") == "ok"
    engine.play(*reply("Long.", tokens=LONG))
    assert await site.ask(running, "poor") == "ok"
    assert await site.ask(running, "poor") == "key_tpm_exceeded"
    site.check_rpm()


async def check_metrics(running: Running) -> None:
    """Usage by key and model, refusals by key and code, 401 by listener."""
    for url, times in ((running.url + "/v1/models", 2), (running.admin + "/admin/status", 1)):
        for _ in range(times):
            async with running.client.get(url, headers={"authorization": "Bearer wrong"}) as refused:
                assert refused.status == 401
    count = await scrape(running)
    assert count("manners_unauthorized_total", listener="public") == 2
    assert count("manners_unauthorized_total", listener="admin") == 1
    assert count("manners_tokens_total", model="annie", key="poor", kind="completion") == LONG
    assert count("manners_tokens_total", model="annie", key="slow", kind="prompt") >= 7 * RPM
    for key, code in (("pair", "concurrency"), ("slow", "rpm"), ("poor", "tpm")):
        assert count("manners_key_limited_total", key=key, code=f"key_{code}_exceeded") > 0
    assert count("manners_reloads_total", result="ok") == 1


async def check_console(site: Site, running: Running, page: Page) -> None:
    """Whoever may only watch sees the keys with what they used, who changed what, and clocks of before the page was opened."""
    await page.do("Page.navigate", url=f"{running.admin}/admin/ui")
    await page.until("!document.getElementById('enter').hidden")
    await sign_in(page, site.secrets["wanda"])
    await page.until(says("wanda (watch)", "#state"))
    for part in (
        "pair",
        "concurrency 2",
        "slow",
        f"rpm {RPM}",
        "poor",
        "tpm 1,000 · budget 60,000",
        "50,007",
    ):
        await page.until(says(part, "#keys"))
    await page.until(says("administer", "#operators"))
    await page.until(says("since the start", "#model-annie .clock"))
    rows = "[...document.querySelectorAll('#audit tbody tr')].map((row) => row.innerText.split(/\\s/))"
    await page.until(f"{rows}.some((row) => row.includes('bo') && row.includes('configuration.reloaded'))")


def check_log(lines: list[dict[str, Any]]) -> None:
    """Each request's line names its key, its model and its tokens; no line holds a secret."""
    used = Counter[str]()
    for line in lines:
        if line.get("outcome") == "ok":
            assert line["model"] == "annie"
            used[line["key"]] += line["prompt_tokens"] + line["completion_tokens"]
    assert used["poor"] == LONG + 7 and used["slow"] > 0


async def test_keys_and_operators_hold_through_load_reload_and_restart(tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as engine,
        chromium(tmp_path / "profile") as browser,
        browser.page() as page,
    ):
        site = Site(write(tmp_path, engine.url))
        for name, limits in LIMITS.items():
            await site.add("key", name, *limits)
        async with serving(site.config) as running:
            await site.add("operator", "bo", "--role", "administer", "--admin", running.admin)
            await site.add("operator", "wanda", "--admin", running.admin, by="bo")
            await under_load(site, running, engine)
            await check_metrics(running)
            await check_console(site, running, page)
            log = await stop(running)
        check_log(log)
        assert not any(secret in json.dumps(log) for secret in site.secrets.values())
        async with serving(site.config) as running:
            await site.crowd(running, "slow")
            site.check_rpm()
            assert await site.ask(running, "poor") == "key_tpm_exceeded"
            await site.manners("key", "limit", "poor", "--tpm", "0", "--admin", running.admin, by="bo")
            engine.play(*reply("Long.", tokens=LONG))
            assert await site.ask(running, "poor") == "ok"
            assert await site.ask(running, "poor") == "key_budget_exceeded"
            assert (await site.manners("key", "revoke", "pair", "--admin", running.admin, by="bo"))[0] == 0
            assert await site.ask(running, "pair") == "invalid_api_key"
            audit = (await site.manners("audit", "--last", "50", "--admin", running.admin, by="wanda"))[1]
        for verb in ("operator.added", "configuration.reloaded", "api_key.limited", "api_key.revoked"):
            assert any(verb in line and " bo " in line for line in audit.splitlines()), audit
        assert "the chain holds" in audit
