"""Reports are read one at a time, in a thread of their own: whoever may only look keeps no promotion waiting."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.admin import console, reports, routes
from app.admin.reports import MOST_WAITING
from tests.app.house import TOKEN, Answer, House, eventually, house
from tests.scale import PATIENCE

pytestmark = pytest.mark.asyncio

REPORT = Path(__file__).parents[3] / "docs/reports/nvfp4-vllm-vs-q4km-llama/report.json"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}


@pytest_asyncio.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as it:
        yield it


async def upload(home: House) -> str:
    """The digest of a report that is here now."""
    async with home.client.post(
        f"{home.admin}/admin/reports", data=BytesIO(REPORT.read_bytes()), headers=OPERATOR
    ) as response:
        assert response.status == 201
        return str((await response.json())["digest"])


async def test_whatever_reads_a_report_does_it_in_their_thread(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, str] = {}

    def noted(real: Callable[..., Any]) -> Callable[..., Any]:
        def work(*given: Any, **named: Any) -> Any:
            threads[real.__name__] = threading.current_thread().name
            return real(*given, **named)

        return work

    for module, name in (
        (reports, "read"),
        (reports, "bytes_of"),
        (routes, "_is_trusted"),
        (console, "_open"),
        (console, "reading"),
        (console, "page"),
    ):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    digest = await upload(home)
    assert (await home.operate(f"/admin/reports/{digest}")).raw == REPORT.read_bytes()
    assert (await home.operate(f"/admin/reports/{digest}/reading")).json["verdict"] == "pass"
    assert b"<html" in (await home.operate(f"/admin/reports/{digest}/page")).raw
    assert threads.keys() == {"read", "bytes_of", "_is_trusted", "_open", "reading", "page"}
    assert {name.partition("_")[0] for name in threads.values()} == {"report"}


async def test_so_many_who_look_wait_and_others_work(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = await upload(home)
    entered, is_open = threading.Event(), threading.Event()
    real = reports.bytes_of

    def held(*given: Any) -> bytes:
        entered.set()
        assert is_open.wait(PATIENCE)
        return real(*given)

    monkeypatch.setattr(reports, "bytes_of", held)

    async def look() -> Answer:
        return await home.operate(f"/admin/reports/{digest}/reading")

    looking = [asyncio.create_task(look()) for _ in range(MOST_WAITING + 2)]
    await eventually(lambda: entered.is_set() and any(task.done() for task in looking))
    refused = next(task for task in looking if task.done())
    assert (refused.result().status, refused.result().error["code"]) == (429, "queue_full")
    assert await asyncio.to_thread(lambda: 1) == 1  # as a promotion's steps do it
    assert (await home.operate("/admin/status")).status == 200
    is_open.set()
    found = [answer.status for answer in await asyncio.gather(*looking)]
    assert sorted(found) == [200] * (MOST_WAITING + 1) + [429]
