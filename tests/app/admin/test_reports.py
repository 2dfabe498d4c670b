"""Reports are read one at a time, in a thread of their own: whoever may only look keeps no promotion waiting."""

import threading
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.admin import console, reports
from tests.app.house import TOKEN, GatewayFixture, house

pytestmark = pytest.mark.asyncio

REPORT = Path(__file__).parents[3] / "docs/reports/nvfp4-vllm-vs-q4km-llama/report.json"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}


@pytest_asyncio.fixture
async def home(tmp_path: Path) -> AsyncIterator[GatewayFixture]:
    async with house(tmp_path) as it:
        yield it


async def upload(home: GatewayFixture) -> str:
    """The digest of a report that is here now."""
    async with home.client.post(
        f"{home.admin}/admin/reports", data=BytesIO(REPORT.read_bytes()), headers=OPERATOR
    ) as response:
        assert response.status == 201
        return str((await response.json())["digest"])


async def test_whatever_reads_a_report_does_it_in_their_thread(
    home: GatewayFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, str] = {}

    def noted(real: Callable[..., Any]) -> Callable[..., Any]:
        def work(*given: Any, **named: Any) -> Any:
            threads[real.__name__] = threading.current_thread().name
            return real(*given, **named)

        return work

    for module, name in (
        (reports, "open_report"),
        (reports, "_bytes_of"),
        (console, "reading"),
    ):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    digest = await upload(home)
    assert (await home.operate(f"/admin/reports/{digest}")).raw == REPORT.read_bytes()
    assert (await home.operate(f"/admin/reports/{digest}/reading")).json["verdict"] == "pass"
    assert threads.keys() == {"open_report", "_bytes_of", "reading"}
    assert len(set(threads.values())) == 1 and threading.main_thread().name not in threads.values()
