"""A call that nobody asked for is not spoken: what is left is heard, and of nothing another engine is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from gates.reply.sse import SSEDecoder
from tests.app.house import HELLO, TOOLS, GatewayFixture, house
from tests.app.proxy.test_failover import pair
from tests.fuzz.reply_reader import READERS, WHOLE, Heard
from tests.script import Head, Say, Wait, call, finish, reply, role, text, thought

live = pytest.mark.asyncio(loop_scope="module")

CALL = '<tool_call>\n{"name": "get_date", "arguments": {}}\n</tool_call>'
FLAT: list[dict[str, Any]] = [dict(tool["function"]) for tool in TOOLS]
SURFACES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/messages": {"messages": HELLO, "max_tokens": 50},
    "/v1/responses": {"input": "Hello!"},
}
WITH_TOOLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"tools": TOOLS},
    "/v1/messages": {"tools": [{"name": f["name"], "input_schema": f["parameters"]} for f in FLAT]},
    "/v1/responses": {"tools": [{"type": "function", **f} for f in FLAT]},
}
both = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


async def ask(home: GatewayFixture, path: str, stream: bool, **more: Any) -> tuple[int, Heard]:
    """The status, and what is heard on this surface."""
    body = {"model": "annie", "stream": stream, **SURFACES.get(path, {}), **more}
    async with home.client.post(home.url + path, json=body) as response:
        raw = await response.read()
    if response.status != 200:
        error = json.loads(raw)["error"]
        return response.status, Heard(error=error.get("code") or error["details"]["error_code"])
    return 200, READERS[path](SSEDecoder().feed(raw)) if stream else WHOLE[path](json.loads(raw))


@live
@both
@pytest.mark.parametrize("path", SURFACES)
async def test_a_reply_of_nothing_but_a_call_ends_with_an_honest_code(
    home: GatewayFixture, path: str, stream: bool
) -> None:
    home.engine.always(*reply(CALL))
    assert await ask(home, path, stream) == (502, Heard(error="reply_fully_filtered"))
    line = await home.booked()
    assert (line["code"], line["calls"]) == ("reply_fully_filtered", ["unasked"])
    assert line["breaches"] == ["raw_tool_call"]


@live
@both
@pytest.mark.parametrize("path", SURFACES)
async def test_a_model_may_have_a_sentence_for_it(tmp_path: Path, path: str, stream: bool) -> None:
    async with house(tmp_path, when_nothing_is_left="Sorry, I can't do that.") as home:
        home.engine.always(*reply(CALL))
        status, heard = await ask(home, path, stream)
        assert (status, heard.text, heard.finish) == (200, "Sorry, I can't do that.", "stop")
        line = await home.booked()
        assert (line["code"], line["outcome"]) == ("reply_fully_filtered", "upstream_error")
        metrics = await home.metrics()
        assert metrics("manners_requests_total", outcome="upstream_error") == 1


@live
@both
async def test_it_is_said_behind_a_thought_and_in_each_choice_but_not_where_json_was_asked_for(
    tmp_path: Path, stream: bool
) -> None:
    sentence = "Sorry, I can't do that."
    async with house(
        tmp_path, reasoning="separate", thinking="on", when_nothing_is_left=sentence, concurrency=1
    ) as home:
        home.engine.always(
            Head(), Say(role()), Say(thought("Hm.")), Wait(0.05), Say(text(CALL)), Say(finish())
        )
        path = "/v1/chat/completions"
        assert (await ask(home, path, stream))[1].text == sentence
        body = {"model": "annie", "stream": stream, "messages": HELLO, "n": 2}
        async with home.client.post(home.url + path, json=body) as response:
            raw = await response.text()
        assert (response.status, raw.count(sentence)) == (200, 2)
        home.engine.always(*reply("<think>Hm.</think>"))
        assert (await ask(home, path, stream, **FORMATS[path]))[1].error == "reply_fully_filtered"


@live
@both
@pytest.mark.parametrize("path", WITH_TOOLS)
async def test_a_call_of_another_tool_is_no_call(home: GatewayFixture, path: str, stream: bool) -> None:
    other = (Head(), Say(role()), Say(call("fly", "{}")), Say(finish("tool_calls")))
    for first in (reply(CALL), other):
        home.engine.forget()
        home.engine.play(*first)
        _, heard = await ask(home, path, stream, **WITH_TOOLS[path])
        assert (heard.text, heard.calls, heard.error) == ("", [], "reply_fully_filtered")
        assert (await home.booked())["calls"] == ["unasked"]


FORMATS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"response_format": {"type": "json_object"}},
    "/v1/responses": {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}},
}


@live
@both
@pytest.mark.parametrize("path", FORMATS)
async def test_where_json_was_asked_for_it_is_the_answer(
    home: GatewayFixture, path: str, stream: bool
) -> None:
    bare = '{"name": "get_date", "arguments": {}}'
    home.engine.play(*reply(bare))
    assert (await ask(home, path, stream, **FORMATS[path]))[1].text == bare
    home.engine.play(*reply("Hi.\n", bare))
    assert (await ask(home, path, stream))[1].text.strip() == "Hi."


@live
async def test_then_another_engine_may_answer(tmp_path: Path) -> None:
    async with pair(tmp_path, when_nothing_is_left="Sorry.") as (home, first, second):
        first.always(*reply(CALL))
        second.always(*reply("Words."))
        assert (await home.ask()).text == "Words."
        assert (len(first.requests), len(second.requests)) == (1, 1)
        metrics = await home.metrics()
        assert metrics("manners_tool_calls_total", engine="live", source="unasked") == 1
        assert metrics("manners_breach_total", engine="live", detector="raw_tool_call") == 1
