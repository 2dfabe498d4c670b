"""`speech = "plain"`: callers of a model for voices get sentences, streamed and whole, on all four APIs."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gates.reply.sse import SSEDecoder
from tests.app.house import HELLO, TOOLS, House, house
from tests.fuzz.hearing import READERS, WHOLE, Heard
from tests.script import CloseNow, Head, Say, call, finish, reply, role, text

live = pytest.mark.asyncio(loop_scope="module")
MARKDOWN = ("# The ti", "mer\n\n- **ten** min", "utes\n- see [here](https://a.org) 🙂")
SPOKEN = "The timer.\n\nten minutes.\nsee here."
SURFACES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/messages": {"messages": HELLO, "max_tokens": 50},
    "/v1/responses": {"input": "Hello!"},
    "/v1/completions": {"prompt": "Hello!"},
}
CHAT = "/v1/chat/completions"
both = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A gateway whose model is for voices."""
    async with house(tmp_path_factory.mktemp("state"), speech="plain") as it:
        yield it


@pytest.fixture
def home(shared: House) -> House:
    """The same, its engine as if new."""
    shared.engine.forget()
    return shared


async def ask(home: House, path: str, stream: bool, **more: Any) -> Heard:
    """What is heard on this surface."""
    body = {"model": "annie", "stream": stream, **SURFACES[path], **more}
    async with home.client.post(home.url + path, json=body) as response:
        raw = await response.read()
    return READERS[path](SSEDecoder().feed(raw)) if stream else WHOLE[path](json.loads(raw))


@live
@both
@pytest.mark.parametrize("path", SURFACES)
async def test_markdown_is_said_as_sentences(home: House, path: str, stream: bool) -> None:
    home.engine.play(*reply(*MARKDOWN))
    heard = await ask(home, path, stream)
    assert (heard.text, heard.finish, heard.error) == (SPOKEN, "stop", None)


@live
@both
async def test_what_is_held_is_said_before_a_call_whose_arguments_stay(home: House, stream: bool) -> None:
    made = call("web_search", '{"query": "**a** - b"}')
    home.engine.play(Head(), Say(role()), Say(text("- Let me **see")), Say(made), Say(finish("tool_calls")))
    heard = await ask(home, CHAT, stream, tools=TOOLS)
    assert (heard.text, heard.parsed) == ("Let me see.", [("web_search", {"query": "**a** - b"})])


@live
@both
@pytest.mark.parametrize(
    "asked", [{"response_format": {"type": "json_object"}}, {"logprobs": True}], ids=["json", "logprobs"]
)
async def test_json_and_text_with_logprobs_stay_as_they_are(
    home: House, stream: bool, asked: dict[str, Any]
) -> None:
    home.engine.play(*reply('{"a": "**b**"}'))
    assert (await ask(home, CHAT, stream, **asked)).text == '{"a": "**b**"}'


@live
async def test_what_is_held_is_said_when_the_engine_breaks_off(home: House) -> None:
    home.engine.play(Head(), Say(role()), Say(text("So!")), CloseNow())
    heard = await ask(home, CHAT, True)
    assert heard.text == "So!" and heard.error


@live
async def test_by_default_markdown_goes_out_as_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with house(tmp_path_factory.mktemp("state")) as home:
        home.engine.play(*reply(*MARKDOWN))
        assert (await ask(home, CHAT, True)).text == "".join(MARKDOWN)
