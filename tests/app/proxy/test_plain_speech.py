"""`speech = "plain"`: callers of a model for voices get sentences, streamed and whole, on all four APIs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.app.house import TOOLS, GatewayFixture, house
from tests.app.proxy.test_unasked_calls import SURFACES, ask, both, live
from tests.script import Head, Say, call, finish, reply, role, text

MARKDOWN = ("# The ti", "mer\n\n- **ten** min", "utes\n- see [here](https://a.org) 🙂")
SPOKEN = "The timer.\n\nten minutes.\nsee here."
CHAT = "/v1/chat/completions"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway whose model is for voices."""
    async with house(tmp_path_factory.mktemp("state"), speech="plain") as it:
        yield it


@live
@both
@pytest.mark.parametrize("path", SURFACES)
async def test_markdown_is_said_as_sentences(home: GatewayFixture, path: str, stream: bool) -> None:
    home.engine.play(*reply(*MARKDOWN))
    _, heard = await ask(home, path, stream)
    assert (heard.text, heard.finish, heard.error) == (SPOKEN, "stop", None)


@live
@both
async def test_what_is_held_is_said_before_a_call_whose_arguments_stay(
    home: GatewayFixture, stream: bool
) -> None:
    made = call("web_search", '{"query": "**a** - b"}')
    home.engine.play(Head(), Say(role()), Say(text("- Let me **see")), Say(made), Say(finish("tool_calls")))
    _, heard = await ask(home, CHAT, stream, tools=TOOLS)
    assert (heard.text, heard.parsed) == ("Let me see.", [("web_search", {"query": "**a** - b"})])


@live
@both
@pytest.mark.parametrize(
    "asked", [{"response_format": {"type": "json_object"}}, {"logprobs": True}], ids=["json", "logprobs"]
)
async def test_json_and_text_with_logprobs_stay_as_they_are(
    home: GatewayFixture, stream: bool, asked: dict[str, Any]
) -> None:
    home.engine.play(*reply('{"a": "**b**"}'))
    assert (await ask(home, CHAT, stream, **asked))[1].text == '{"a": "**b**"}'
