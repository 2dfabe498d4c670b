"""A gateway over the shipped nano models, served by real llama.cpp servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.app.house import MODELS as MODELS
from tests.app.house import GatewayFixture, configured, nano, run

MARKS = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not (MODELS / "annie-nano-q4_k_m").exists(), reason="the nano models are missing: make nano"
    ),
]


@asynccontextmanager
async def nano_house(base: Path) -> AsyncIterator[GatewayFixture]:
    """annie, annie who shows her thoughts (beside the reply or in it), and the stranger, behind one gateway."""
    models = {
        "annie": {"live": "annie-nano"},
        "annie-aloud": {"live": "annie-nano", "reasoning": "separate"},
        "annie-inline": {"live": "annie-nano", "reasoning": "inline"},
        "stranger": {"live": "stranger-nano"},
    }
    engines = {"annie-nano": nano(), "stranger-nano": nano("stranger-nano-q4_k_m")}
    async with run(configured(base, engines, **models)) as it:
        while set(it.gateway.pool.states()) != {"annie-nano", "stranger-nano"} or not all(
            state.url for state in it.gateway.pool.states().values()
        ):
            await asyncio.sleep(0.02)
        yield it
