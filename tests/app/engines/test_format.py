"""An operator sees how an engine's model writes calls, and is told where that is not what its chat template teaches."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

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
