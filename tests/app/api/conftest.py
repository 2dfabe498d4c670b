"""OpenAI's client, as a caller has it."""

from collections.abc import AsyncIterator

import pytest_asyncio
from openai import AsyncOpenAI

from tests.app.house import GatewayFixture


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(shared: GatewayFixture) -> AsyncIterator[AsyncOpenAI]:
    """A client of the gateway that the tests of a file share."""
    async with AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="any", max_retries=0) as it:
        yield it
