"""These tests run in the gateway's own event loop, as those of `tests/app` do."""

from tests.app.conftest import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
