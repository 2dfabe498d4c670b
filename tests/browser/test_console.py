"""The console in a real browser, over a gateway with two real engines: who may look, what is refused, what goes through."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from app.admin import routes
from app.config.config import parse
from gates.contracts.verdict import Verdict
from tests.app.house import TOKEN
from tests.app.promotion.stage import Stage, callers, stage, tables
from tests.app.promotion.stage import quick as quick
from tests.browser.chromium import BINARY, INSTALL, Browser, Page, chromium
from tests.gates.report import examples

pytestmark = [
    pytest.mark.browser,
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(BINARY is None, reason=INSTALL),
]
PICTURE_BYTES = 150_000
PICTURES = os.environ.get("PICTURES")
"""The folder for the console's pictures; they are thrown away without it."""
BAKE_S = 3.0
"""Long enough for a hand to come between."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One gateway: `small` live when a test begins."""
    state = tmp_path_factory.mktemp("state")
    asked = tables(state)
    asked["promotion"]["bake_seconds"] = BAKE_S
    async with stage(state, parse(asked, state)) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """One for all: to start it takes longer than most tests."""
    async with chromium(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def page(it: Stage, browser: Browser) -> AsyncIterator[Page]:
    """The console, before anybody has signed in. It asks nobody else, shows no token and has no mishap."""
    async with browser.page() as found:
        await found.do("Page.navigate", url=f"{it.house.admin}/admin/ui")
        await found.until("!document.getElementById('enter').hidden")
        yield found
        asked = [request["url"] for request in found.requests if not request["url"].startswith("data:")]
        assert {urlsplit(url).netloc for url in asked if url.startswith("http")} == {
            urlsplit(it.house.admin).netloc
        }
        assert all(url.startswith(("http", "blob:", "about:")) and TOKEN not in url for url in asked)
        assert found.wrong == []


def says(what: str, where: str = "body") -> str:
    """That a part of the page says something, as an expression."""
    return f"document.querySelector({where!r}).innerText.includes({what!r})"


def serves(engine: str) -> str:
    """That the console shows this engine as the live one."""
    return f"document.querySelector('#model-annie .live').innerText === {engine!r}"


async def sign_in(page: Page, token: str = TOKEN) -> None:
    await page.type("textbox", "Operators' token", token)
    await page.press("Enter", 13, "\r")


async def enter(page: Page, engine: str = "small") -> None:
    await sign_in(page)
    await page.until(serves(engine))
    await page.until(says("whole", "#chain"))


async def ask(page: Page, engine: str, report: str) -> None:
    """Open the dialog, and ask what a promotion would do."""
    await page.click("button", "Promote…")
    await page.choose("Engine", engine)
    await page.choose("Report", report)
    await page.click("button", "See what it would do")


async def failed(it: Stage) -> str:
    decision = replace(examples.failing().decision, verdict=Verdict.FAIL)
    return await it.report("large", "small", decision=decision)


async def look(page: Page, tmp_path: Path, name: str, theme: str) -> None:
    """A picture of the console; it goes where PICTURES says."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    await page.do("Emulation.setEmulatedMedia", features=features)
    path = Path(PICTURES or tmp_path) / name
    await page.picture(path)
    assert 10_000 < path.stat().st_size <= PICTURE_BYTES


async def test_a_wrong_token_is_refused_and_forgotten(page: Page) -> None:
    await sign_in(page, "wrong")
    await page.until(says("invalid_api_key", "#refused"))
    assert await page.run("sessionStorage.length + localStorage.length") == 0
    assert await page.run("document.getElementById('inside').hidden")


async def test_the_right_token_is_kept_by_the_tab_until_somebody_signs_out(page: Page) -> None:
    await enter(page)
    await page.do("Page.reload")
    await page.until(serves("small"))
    await page.click("button", "Sign out")
    await page.until("!document.getElementById('enter').hidden")
    assert await page.run("sessionStorage.length + localStorage.length + document.cookie.length") == 0


async def test_an_operator_who_may_only_watch_sees_who_they_are_and_can_change_nothing(
    it: Stage, page: Page
) -> None:
    """And that the engine of the configuration serves without a report."""
    status, made = await it.post("/admin/operators", {"name": "wanda", "role": "watch"})
    assert status == 201
    await sign_in(page, made["token"])
    await page.until(says("wanda (watch)", "#state"))
    await page.until(says("live without a report", "#model-annie .ungated"))
    for button in ("main", "back"):
        assert await page.run(f"document.querySelector('#model-annie .{button}').disabled")


async def test_a_refused_promotion_shows_its_code_and_cannot_be_begun(
    it: Stage, page: Page, tmp_path: Path
) -> None:
    report = await failed(it)
    await enter(page)
    await ask(page, "large", report)
    await page.until(says("verdict_not_pass", "#refusal"))
    assert await page.run("document.getElementById('wish-do').disabled")


async def test_an_engine_is_promoted_watched_and_rolled_back(
    it: Stage, page: Page, tmp_path: Path, quick: None
) -> None:
    await failed(it)
    report = await it.report("large", "small")
    await enter(page)
    async with callers(it.house, 2):
        for count in (2, 12, 24)[: 3 if PICTURES else 1]:  # a longer line looks better
            await page.until(f"document.querySelector('#model-annie polyline').points.length >= {count}")
        assert await page.run("document.querySelectorAll('#model-annie polyline').length") == 3
    await ask(page, "large", report)
    await page.until(says("large instead of small", "#plan"))
    await look(page, tmp_path, "console-dark.png", "dark")
    await page.click("button", "Promote")
    await page.until(says("baking", "#model-annie .told"))
    await look(page, tmp_path, "console-light.png", "light")
    await page.until(says("succeeded", "#model-annie .told"))
    await page.until(serves("large"))
    passed = await page.run("[...document.querySelectorAll('.track li.past')].map((li) => li.innerText)")
    assert passed[0] == "queued" and passed[-3:] == ["baking", "retiring", "succeeded"], passed
    await page.until(says("promote.succeeded", "#audit"))
    await page.click("button", "Roll back…")
    await page.until(says("small instead of large", "#plan"))
    await page.click("button", "Roll back")
    await page.until(says("Rollback to small succeeded", "#model-annie .told"))
    await page.until(serves("small"))
    assert (await it.get("/admin/status"))["models"]["annie"]["live"] == "small"


async def test_a_promotion_that_is_watched_is_turned_back(it: Stage, page: Page, quick: None) -> None:
    report = await it.report("large", "small")
    await enter(page)
    await ask(page, "large", report)
    await page.until(says("large instead of small", "#plan"))
    await page.click("button", "Promote")
    await page.until(says("baking", "#model-annie .told"))
    await page.until(serves("large"))
    await page.click("button", "Roll back…")
    await page.until(says("it is turned back", "#plan"))
    await page.click("button", "Roll back")
    await page.until(says("rolled back", "#model-annie .told"))
    await page.until(says("turned_back", "#model-annie .why"))
    await page.until(serves("small"))


async def test_a_report_is_opened_in_the_words_of_its_judge(it: Stage, page: Page) -> None:
    report = await failed(it)
    await enter(page)
    await page.until(says(report[:15], "#reports"))
    await page.click("button", f"{report[:15]}…")
    await page.until(says("must not take over", "#reading"))
    assert await page.run(says("signed by a trusted key", "#reading"))
    await page.press("Escape", 27)
    await page.until("!document.getElementById('reading').open")


async def test_the_progress_goes_on_where_a_broken_connection_ended(
    it: Stage, page: Page, quick: None
) -> None:
    whole = routes._stream

    async def breaks_off(events: Any, check: Any) -> AsyncIterator[bytes]:
        """Three events, and nobody says that it is over."""
        count = 0
        async for piece in whole(events, check):
            yield piece
            count += 1
            if count == 3:
                return

    report = await it.report("large", "small")
    await enter(page)
    await ask(page, "large", report)
    await page.until(says("large instead of small", "#plan"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "_stream", breaks_off)
        await page.click("button", "Promote")
        await page.until(says("succeeded", "#model-annie .told"))
    asked = [r["headers"].get("Last-Event-ID") for r in page.requests if r["url"].endswith("/events")]
    numbers = [int(number) for number in asked]
    assert numbers[0] == 0 and len(numbers) > 3
    assert numbers == sorted(set(numbers)), "an event was asked for twice"
    assert (await it.rollback())["phase"] == "succeeded"


async def test_keys_with_their_limits_and_operators_with_their_roles_are_listed(
    it: Stage, page: Page
) -> None:
    """The last test: from the first key on, callers need one."""
    assert (await it.post("/admin/keys", {"name": "kitchen", "rpm": 5}))[0] == 201
    assert (await it.post("/admin/operators", {"name": "bo", "role": "administer"}))[0] == 201
    await enter(page)
    for words, where in (("kitchen", "#keys"), ("rpm 5", "#keys"), ("administer", "#operators")):
        await page.until(says(words, where))
