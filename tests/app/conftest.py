"""What the tests of the gateway share: its own event loop, and one house for a file of tests."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import uvloop

from tests.app.house import GatewayFixture, forget, house


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """The loop that `manners serve` runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """One gateway for all tests of a file that need no settings of their own."""
    limits = {"max_body_bytes": 4096, "max_messages": 5}
    async with house(tmp_path_factory.mktemp("state"), gateway=limits) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def home(shared: GatewayFixture) -> GatewayFixture:
    """The shared gateway, with a fresh script."""
    shared.engine.forget()
    forget(shared.gateway.pool)
    await shared.settle()
    return shared
