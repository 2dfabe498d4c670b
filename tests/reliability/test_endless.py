"""No reply without an end takes memory without a bound: each is cut off by its bytes, with one clear error."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.reliability.endless import KINDS, MOST_MIB, Place, attempt, place, served

pytestmark = [pytest.mark.reliability, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place(tmp_path_factory.mktemp("endless")) as it:
        yield it


@pytest.mark.parametrize("name", KINDS)
async def test_an_endless_reply_costs_little_memory_and_ends_with_an_error(at: Place, name: str) -> None:
    row = await attempt(at, name)
    print(row)
    assert row["ending"] == KINDS[name].code
    assert row["above_rest_mib"] < MOST_MIB
    await served(at)
