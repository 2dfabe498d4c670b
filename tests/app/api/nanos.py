"""A gateway over the shipped nano models, served by real llama.cpp servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.config.config import parse
from tests.app.house import House, run

MODELS = Path(__file__).parents[3] / "models"
MARKS = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not (MODELS / "annie-nano-q4_k_m").exists(), reason="the nano models are missing: make nano"
    ),
]


@asynccontextmanager
async def nano_house(base: Path) -> AsyncIterator[House]:
    """annie, annie who shows her thoughts (beside the reply or in it), and the stranger, behind one gateway."""
    engine = {"dialect": "llama-server", "driver": "embedded"}
    tables: dict[str, Any] = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(base)},
        "engines": {
            "annie-nano": {**engine, "artefact": str(MODELS / "annie-nano-q4_k_m")},
            "stranger-nano": {**engine, "artefact": str(MODELS / "stranger-nano-q4_k_m")},
        },
        "models": {
            "annie": {"live": "annie-nano"},
            "annie-aloud": {"live": "annie-nano", "reasoning": "separate"},
            "annie-inline": {"live": "annie-nano", "reasoning": "inline"},
            "stranger": {"live": "stranger-nano"},
        },
    }
    nobody: Any = None  # these engines follow no script
    async with run(parse(tables, base), nobody) as it:
        while set(it.gateway.pool.states()) != {"annie-nano", "stranger-nano"} or not all(
            state.url for state in it.gateway.pool.states().values()
        ):
            await asyncio.sleep(0.02)
        yield it
