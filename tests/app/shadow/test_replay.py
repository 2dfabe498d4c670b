"""Recorded for real, and asked again for real: annie-nano and its FP4 form; the stranger is in tests/app/cli/test_shadow.py."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Shadow
from app.shadow.replay import replay
from tests.app.house import MODELS, configured, nano, run

ENGINES = {"annie-nano": "annie-nano-q4_k_m", "annie-nano-nvfp4": "annie-nano-nvfp4"}
pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio,
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


@pytest.mark.slow  # real engines are asked, and asked again: 3 s
async def test_its_own_weights_in_fp4_call_the_same(tmp_path: Path) -> None:
    engines = {name: nano(folder) for name, folder in ENGINES.items()}
    config = configured(tmp_path, engines, annie={"live": "annie-nano"})
    config = config.model_copy(update={"shadow": Shadow(record=True, share=1.0)})
    async with run(config) as it:
        for words, tools in TALK:
            more: dict[str, Any] = {"temperature": 0, **({"tools": tools} if tools else {})}
            reply = await it.ask(messages=[{"role": "user", "content": words}], stream=True, **more)
            assert reply.status == 200
            await it.booked()
    found = await replay(config, datetime.now(UTC), candidate="annie-nano-nvfp4")
    assert (found.baseline, found.records, found.left_out) == ("annie-nano", 6, 0)
    assert (found.same, found.calls) == (3, 3)
    assert found.breaches["any"]["candidate"] <= found.breaches["any"]["baseline"] and found.word in (
        "alike",
        "open",
    )
