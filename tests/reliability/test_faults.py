"""What callers hear when the wire to a real engine fails, in the table of `faults`."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.app.promotion.nano import needs_models
from tests.reliability.faults import FAULTS, MODELS, Place, place, rehearse
from tests.reliability.proxy import ACCENTED
from tests.scale import PATIENCE

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    needs_models,
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place(tmp_path_factory.mktemp("wire")) as it:
        yield it


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_wire_is_told_or_nobody_notices(at: Place, name: str, model: str) -> None:
    """A whole reply, an honest error, or another engine's reply; counted once; nothing is left open."""
    tried = FAULTS[name]
    row = await rehearse(at, name, model)
    saved = model == "fallback" and tried.code and not tried.shown
    heard = "" if saved else tried.code
    assert row["code"] == heard, row
    if heard:
        assert row["ends"] == 0
        assert row["status"] == (200 if tried.shown else 504 if "timeout" in heard else 502)
        assert bool(row["text"]) == tried.shown
        assert row["counted"] == {"timeout" if "timeout" in heard else "upstream_error": 1}
    else:
        assert (row["status"], row["ends"], row["counted"]) == (200, 1, {"ok": 1})
        assert row["text"]
    assert (ACCENTED in row["text"]) == (name == "characters of UTF-8 split in two")
    assert "\ufffd" not in row["text"]
    assert (row["engine"], row["failovers"]) == (("spare", 1) if saved else ("broken", 0))
    assert (row["open_requests"], row["open_connections"]) == (0, 0)


async def test_a_caller_who_leaves_frees_an_engine_that_is_half_open(at: Place) -> None:
    """The gateway does not wait for the deadline of someone who is gone."""
    at.proxy.fault = FAULTS["half open: no answer"].fault
    try:
        at.home.gateway.pool._backends["broken"].upstream.close()
        async with asyncio.timeout(PATIENCE):
            request = asyncio.create_task(at.home.ask(model="patient", stream=True))
            while not at.home.gateway.pool.outstanding:
                await asyncio.sleep(0.005)
            request.cancel()
            while at.home.gateway.pool.outstanding or at.home.gateway.proxy.in_flight:
                await asyncio.sleep(0.005)
    finally:
        at.proxy.fault = FAULTS["byte by byte"].fault
    assert (await at.home.ask(model="patient", messages=[{"role": "user", "content": "Hi"}])).status == 200
