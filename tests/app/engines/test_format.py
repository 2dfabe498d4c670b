"""An operator sees how an engine's model writes calls, and is told where that is not what its chat template teaches."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.__main__ import main
from tests.app.house import GatewayFixture, configured, run
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROPS = {
    "default_generation_settings": {"n_ctx": 4096},
    "chat_template": "<tools></tools> For each function call <tool_call>",
}


@pytest_asyncio.fixture(loop_scope="module")
async def home(tmp_path: Path) -> AsyncIterator[GatewayFixture]:
    """The configuration states a format that the template of the engine does not teach."""
    async with ScriptedEngine() as engine:
        engine.answers["/props"] = PROPS
        spec = {"dialect": "llama-server", "driver": "url", "url": engine.url, "format": "llama"}
        async with run(configured(tmp_path, {"one": spec}, annie={"live": ["one"]}), engine) as it:
            yield it


async def test_a_format_that_the_template_does_not_teach_is_logged_once_and_shown(
    home: GatewayFixture,
) -> None:
    (engine,) = (await home.operate("/admin/engines")).json["engines"]
    assert (engine["format"], engine["abilities"]["taught"]) == ("llama", "hermes")
    (line,) = home.log.of("engine_format_misfit")
    assert line["reason"] == engine["format_misfit"] and "remove format" in line["reason"]


async def test_the_list_shows_a_format_that_only_the_engine_tells(
    home: GatewayFixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "manners.toml"
    config.write_text(
        f'[gateway]\nstate = "state"\n[engines.one]\ndialect = "llama-server"\ndriver = "url"\nurl = "{home.engine.url}/v1"\n'
        '[models.annie]\nlive = ["one"]\n',
        "utf-8",
    )
    assert await asyncio.to_thread(main, ["engine", "list", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["engines"][0]["format"] == "hermes"
