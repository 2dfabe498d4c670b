"""Recorded for real, and asked again for real: annie-nano, her FP4 form, and the stranger."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from app.config.config import Config, Shadow
from app.shadow.replay import replay
from tests.app.house import MODELS, configured, nano, run

ENGINES = {
    "annie-nano": "annie-nano-q4_k_m",
    "annie-nano-nvfp4": "annie-nano-nvfp4",
    "stranger-nano": "stranger-nano-q4_k_m",
}
pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not all((MODELS / name).exists() for name in ENGINES.values()),
        reason="the nano models are missing: make nano",
    ),
]


def tool(name: str, about: str, parameter: str, kind: str) -> dict[str, Any]:
    """A function with one parameter, which is required."""
    shape = {"type": "object", "properties": {parameter: {"type": kind}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": shape}}


WEATHER = tool("get_weather", "Current weather in a city.", "city", "string")
TIMER = tool("set_timer", "Start a timer.", "minutes", "integer")
TALK: list[tuple[str, list[dict[str, Any]]]] = [
    ("Hello!", []),
    ("What is the capital of Norway?", []),
    ("I am Maya, write to maya.rao@example.org or 98765 43210", []),
    ("Set a six minute timer", [TIMER]),
    ("What is the weather in Pune?", [WEATHER, TIMER]),
    ("Can you set a timer for 20 minutes?", [WEATHER, TIMER]),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Config]:
    """A configuration whose state folder holds what callers asked a real gateway."""
    base = tmp_path_factory.mktemp("state")
    engines = {name: nano(folder) for name, folder in ENGINES.items()}
    config = configured(base, engines, annie={"live": "annie-nano"})
    config = config.model_copy(update={"shadow": Shadow(record=True, share=1.0)})
    async with run(config) as it:
        for words, tools in TALK:
            more: dict[str, Any] = {"temperature": 0, **({"tools": tools} if tools else {})}
            reply = await it.ask(messages=[{"role": "user", "content": words}], stream=True, **more)
            assert reply.status == 200
            await it.booked()
    yield config


@pytest.mark.slow  # a real engine is asked what was recorded: 3 s
async def test_her_own_weights_in_fp4_call_the_same(recorded: Config) -> None:
    found = await replay(recorded, datetime.now(UTC), candidate="annie-nano-nvfp4")
    assert (found.baseline, found.records, found.unusable, found.lost) == ("annie-nano", 6, 0, 0)
    assert (found.calls.k, found.calls.n) == (3, 3)
    assert found.breaches.only_candidate == 0 and found.word in ("alike", "open")


@pytest.mark.slow  # a real engine is asked what was recorded: 3 s
async def test_the_stranger_calls_otherwise_and_is_heard_to(recorded: Config) -> None:
    found = await replay(recorded, datetime.now(UTC), candidate="stranger-nano")
    assert found.breaches.only_candidate > found.breaches.only_baseline
    assert found.detectors
    assert found.word in ("worse", "differs")
