"""The official packages against the gateway: what a stranger's client sees, in each of the three chat APIs."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.app.api.sdks import APIS, CHAT, MESSAGES, RESPONSES, Chat, raw
from tests.app.house import HELLO, GatewayFixture, house
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    Head,
    Reset,
    Say,
    Step,
    Until,
    Wait,
    call,
    chunk,
    finish,
    reply,
    role,
    status,
    text,
    thought,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
apis = pytest.mark.parametrize("api", APIS, ids=lambda api: type(api).__name__)
both = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clients(shared: GatewayFixture) -> AsyncIterator[dict[Chat, Any]]:
    """A client of each API."""
    found = {api: api.client(shared.url) for api in APIS}
    yield found
    for client in found.values():
        await client.close()


@apis
@both
async def test_a_reply_has_its_parts_in_their_places(
    home: GatewayFixture, clients: dict[Chat, Any], api: Chat, stream: bool
) -> None:
    said = await api.ask(clients[api], stream, **api.turn("Hello!"))
    assert (said.text, said.kinds, said.end) == ("Hello there.", ["text"], api.ends["stop"])
    assert said.usage == (7, 2)
    assert said.done.model == "annie" and said.done.id.startswith(api.id_prefix)


async def test_the_events_of_a_stream_are_those_of_the_package_in_their_order(home: GatewayFixture) -> None:
    row = MESSAGES.events((await raw(home, MESSAGES, stream=True))[1])
    assert [e["delta"]["text"] for e in row if e["type"] == "content_block_delta"] == ["Hello", " there."]
    row = RESPONSES.events((await raw(home, RESPONSES, stream=True))[1])
    assert [e["type"].removeprefix("response.") for e in row] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


FIELDS: dict[Chat, tuple[dict[str, Any], dict[str, Any], list[dict[str, str]]]] = {
    # asked, sent, and the first turns
    RESPONSES: (
        {
            "instructions": "Be brief.", "max_output_tokens": 50, "temperature": 0.5, "top_p": 0.9, "user": "u",
            "parallel_tool_calls": False, "tool_choice": "auto",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
            "reasoning": {"effort": "none"}, "metadata": {"a": "b"}, "store": False,
        },
        {
            "max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "user": "u", "parallel_tool_calls": False, "tool_choice": "auto",
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        },
        [{"role": "system", "content": "Be brief."}],
    ),
    MESSAGES: (
        {
            "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}], "stop_sequences": ["x" * 65],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "metadata": {"user_id": "u"},
            "temperature": 0.5, "top_p": 0.9, "top_k": 20,
        },
        {
            "max_tokens": 300, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "stop": ["x" * 65], "user": "u",
            "tool_choice": "auto", "parallel_tool_calls": False,
        },
        [{"role": "system", "content": "Be\n\nbrief."}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("api", FIELDS, ids=lambda api: type(api).__name__)
async def test_every_field_reaches_the_engine_in_its_words_and_what_goes_nowhere_is_named(
    home: GatewayFixture, api: Chat
) -> None:
    asked, wanted, turns = FIELDS[api]
    answer = await home.post(api.path, api.body(**asked, **api.tools("f"), service_tier="auto"))
    assert answer.headers["x-manners-ignored"] == "service_tier"
    assert answer.headers["x-manners-engine"] == "scripted"
    sent = (await home.engine.request()).body
    assert sent["messages"] == [*turns, *HELLO]
    assert {name: sent.get(name) for name in wanted} == wanted
    assert sent["tools"][0]["function"]["name"] == "f"
    if api is RESPONSES:
        echo = {name: answer.json[name] for name in ("instructions", "max_output_tokens", "metadata")}
        assert echo == {"instructions": "Be brief.", "max_output_tokens": 50, "metadata": {"a": "b"}}
        assert answer.json["tool_choice"] == "auto"


@apis
@pytest.mark.parametrize("on", [True, False, None])
async def test_thinking_is_switched_by_the_apis_own_field(
    home: GatewayFixture, clients: dict[Chat, Any], api: Chat, on: bool | None
) -> None:
    fields = {} if on is None else api.thinking(on)
    await api.ask(clients[api], False, **{**api.turn("Hello!"), **fields})
    assert (await home.engine.request()).body["chat_template_kwargs"] == {"enable_thinking": bool(on)}


CALLS: dict[str, tuple[Step, ...]] = {
    "in the API's field": (Say(call("f", '{"q": "rain"}')), Say(finish("tool_calls"))),
    "as hermes text": (Say(text('I look.<tool_call>\n{"name": "f", "arguments": {"q": "rain"}}\n</tool_call>')), Say(finish())),
    "as Qwen's XML": (Say(text("<tool_call>\n<function=f>\n<parameter=q>\nrain\n</parameter>\n</function>\n</tool_call>")), Say(finish())),
}  # fmt: skip


@apis
@both
@pytest.mark.parametrize("name", CALLS)
async def test_a_tool_call_and_its_answer(
    home: GatewayFixture, clients: dict[Chat, Any], api: Chat, name: str, stream: bool
) -> None:
    """However the engine writes a call, the client can use it, and its result makes the round."""
    home.engine.play(Head(), Say(role()), *CALLS[name], Say(usage(9)), Say(DONE))
    said = await api.ask(clients[api], stream, **api.turn("Hello!"), **api.tools("f"))
    (made,) = said.calls
    assert made[:2] == ("f", {"q": "rain"}) and made[2]
    assert said.end == api.ends["tool_calls"] and said.kinds[-1] == "call"
    home.engine.play(*reply("It will rain."))
    again = {**api.answered(said, "Hello!", "rain"), **api.tools("f")}
    assert (await api.ask(clients[api], False, **again)).text == "It will rain."
    user, assistant, result = (await home.engine.request(2)).body["messages"]
    assert user["role"] == "user"
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] == made[2]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"q": "rain"}
    assert assistant["content"] == ("I look." if name == "as hermes text" else "")
    assert (result["role"], result["content"]) == ("tool", "rain")


@apis
@both
async def test_two_calls_are_two_parts(
    home: GatewayFixture, clients: dict[Chat, Any], api: Chat, stream: bool
) -> None:
    both = (Say(call("f", '{"q": "a"}')), Say(call("f", '{"q": "b"}', 1)))
    home.engine.always(Head(), Say(text("Two.")), *both, Say(finish("tool_calls")), Say(DONE))
    said = await api.ask(clients[api], stream, **api.turn("Hello!"), **api.tools("f"))
    assert said.kinds == ["text", "call", "call"]
    assert [arguments for _, arguments, _ in said.calls] == [{"q": "a"}, {"q": "b"}]
    await api.ask(clients[api], False, **api.answered(said, "Hello!", "x"))
    _, turn, *_ = (await home.engine.request(2)).body["messages"]
    assert turn["content"] == "Two." and len(turn["tool_calls"]) == 2


@pytest.mark.parametrize(
    ("api", "reason"), [(api, reason) for api in APIS for reason in api.ends if reason != "tool_calls"]
)
@both
async def test_why_it_ended(
    home: GatewayFixture, clients: dict[Chat, Any], api: Chat, reason: str, stream: bool
) -> None:
    home.engine.always(Head(), Say(text("Hi.")), Say(finish(reason)), Say(usage(1)), Say(DONE))
    if api is CHAT and reason == "length":  # the package raises for it
        choices = (await home.ask()).json["choices"]
        assert choices[0]["finish_reason"] == "length"
        return
    assert (await api.ask(clients[api], stream, **api.turn("Hello!"))).end == api.ends[reason]


async def test_a_response_without_a_word_has_an_item(home: GatewayFixture) -> None:
    """So that nobody's `output[0]` fails."""
    home.engine.always(Head(), Say(role()), Say(finish()), Say(DONE))
    last = RESPONSES.events((await raw(home, RESPONSES, stream=True))[1])[-1]["response"]
    whole = json.loads((await raw(home, RESPONSES))[1])
    for response in (last, whole):
        assert response["output"][0]["content"][0]["text"] == ""


@apis
@both
async def test_a_thought_is_nowhere_in_the_reply(home: GatewayFixture, api: Chat, stream: bool) -> None:
    """Neither from the engine's field nor from tags."""
    hidden = (Say(text("So.")), Say(thought("SECRET one")), Say(text("<think>SECRET two</think> Yes.")))
    home.engine.always(Head(), *hidden, Say(finish()), Say(DONE))
    _, said = await raw(home, api, stream=stream)
    assert b"Yes." in said
    assert not [word for word in (b"SECRET", b"<think", b'"type":"reasoning"', b"thinking") if word in said]


@apis
@both
async def test_a_thought_is_a_part_of_its_own_where_the_model_is_set_so(
    tmp_path: Path, api: Chat, stream: bool
) -> None:
    """`reasoning = "separate"`."""
    async with house(tmp_path, reasoning="separate", thinking="on") as home:
        shown = (Say(thought("Hm, ")), Say(thought("yes.")), Say(text("Yes.")))
        home.engine.play(Head(), *shown, Say(finish()), Say(DONE))
        async with api.client(home.url) as client:
            said = await api.ask(client, stream, **api.turn("Hello!"))
            assert (said.kinds, said.thought, said.text) == (["thought", "text"], "Hm, yes.", "Yes.")


REFUSED: list[tuple[Chat, dict[str, Any], str]] = [
    (RESPONSES, {"store": True}, "store is not served"),
    (RESPONSES, {"text": {"verbosity": "low"}}, "text.verbosity is not served"),
    (RESPONSES, {"input": None}, "input"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "'item_reference' is not served"),
    (RESPONSES, {"tools": [{"type": "web_search"}]}, "tools.0.type: "),
    (RESPONSES, {"tool_choice": "required"}, "tool_choice needs tools"),
    (RESPONSES, {"truncation": "auto"}, "truncation"),
    (RESPONSES, {"metadata": ["a"]}, "metadata"),
    (MESSAGES, {"max_tokens": None}, "max_tokens"),
    (MESSAGES, {"messages": []}, "messages"),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools.0.type: "),
    (MESSAGES, {"mcp_servers": [{"type": "url"}]}, "mcp_servers is not served"),
    (MESSAGES, {"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
]


@pytest.mark.parametrize(("api", "fields", "words"), REFUSED)
async def test_what_cannot_be_served_is_refused_in_the_apis_envelope(
    home: GatewayFixture, api: Chat, fields: dict[str, Any], words: str
) -> None:
    answer = await home.post(api.path, api.body() | fields)
    assert answer.status == 400
    assert answer.json.keys() == ({"type", "error"} if api is MESSAGES else {"error"})
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert words in answer.json["error"]["message"]


ERRORS: list[tuple[tuple[Step, ...], dict[str, Any], str, str]] = [
    (reply(), {"model": "nobody"}, "NotFoundError", "model_not_found"),
    (reply(), {"user": "x" * 9999}, "APIStatusError", "body_too_large"),
    (status(400, {"error": {"message": "no", "code": "too_long"}}), {}, "BadRequestError", "too_long"),
    (status(422, {}), {}, "UnprocessableEntityError", "engine_error"),
    (status(500), {}, "InternalServerError", "upstream_status"),
    (status(503), {}, "APIStatusError", "engine_busy"),
    ((Head(), Say(b"data: {\n\n")), {}, "InternalServerError", "upstream_malformed"),
]


@apis
@both
@pytest.mark.parametrize(("steps", "fields", "kind", "code"), ERRORS)
async def test_an_error_before_the_first_byte_is_raised_by_the_call_itself(
    home: GatewayFixture, clients: dict[Chat, Any], api: Chat, steps: tuple[Step, ...], fields: dict[str, Any], kind: str,
    code: str, stream: bool,
) -> None:  # fmt: skip
    """With the package's own class, streaming or not."""
    home.engine.play(*steps)
    body = {**api.turn("Hello!"), "extra_body": fields}
    with pytest.raises(getattr(api.package, kind)) as caught:
        await (api.begin(clients[api], **body) if stream else api.ask(clients[api], False, **body))
    assert getattr(caught.value, "error_code" if api is MESSAGES else "code") == code
    assert caught.value.request_id or api is MESSAGES


@apis
async def test_a_stream_that_breaks_off_is_not_taken_for_a_whole_reply(
    home: GatewayFixture, clients: dict[Chat, Any], api: Chat
) -> None:
    home.engine.play(Head(), Say(text("One")), Wait(0.02), Say(text(" two")), Wait(0.02), Reset())
    heard, last, code = "", None, None
    try:
        async for last in await api.begin(clients[api], **api.turn("Hello!")):
            heard += api.word(last)
    except openai.APIError as error:
        code = error.code
    except anthropic.APIStatusError as error:
        code = error.error_code
    if api is RESPONSES:  # the package raises nothing: the last event says it
        assert last is not None and last.type == "response.failed"
        assert last.response.error.code == "server_error"
        code = last.response.error.type
    assert (heard, code) == ("One two", "upstream_truncated")
    assert (await home.booked())["outcome"] == "upstream_error"


async def test_the_first_words_are_not_held_back(home: GatewayFixture, clients: dict[Chat, Any]) -> None:
    """A chunk is with the caller before the engine says the next one."""
    go = [asyncio.Event() for _ in range(3)]
    words = [step for i, event in enumerate(go) for step in (Say(text(f" w{i}")), Until(event))]
    home.engine.play(Head(), Say(role()), *words, Say(finish()), Say(DONE))
    heard = []
    async with asyncio.timeout(PATIENCE):
        async for event in await CHAT.begin(clients[CHAT], messages=HELLO):
            if word := CHAT.word(event):
                heard.append(word)
                go[len(heard) - 1].set()
    assert heard == [" w0", " w1", " w2"]


# Anthropic's stop sequences and keys.


async def test_a_stop_sequence_that_the_engine_says_is_passed_on(
    tmp_path: Path,
) -> None:
    """vLLM says a text, or the number of a token, which is no sequence of the caller's."""
    async with house(tmp_path, dialect="vllm") as home:
        for word, expected in (('"END"', ("stop_sequence", "END")), ("7", ("end_turn", None))):
            last = chunk({}, "stop").replace(
                b'"finish_reason"', b'"stop_reason": %b, "finish_reason"' % word.encode()
            )
            home.engine.play(Head(), Say(text("Hi.")), Say(last), Say(DONE))
            found = json.loads((await raw(home, MESSAGES, stop_sequences=["END"]))[1])
            assert (found["stop_reason"], found["stop_sequence"]) == expected
        assert home.engine.requests[0].body["stop"] == ["END"]


async def test_a_key_may_come_in_either_header(tmp_path: Path) -> None:
    """`x-api-key` as well as a bearer token; a wrong one is Anthropic's 401. Operators have no `x-api-key`."""
    async with house(tmp_path, keys=("key-1",)) as home:
        body = MESSAGES.body()
        for headers in ({"x-api-key": "key-1"}, {"authorization": "Bearer key-1"}):
            assert (await home.post(MESSAGES.path, body, headers)).status == 200
        for wrong in ({}, {"x-api-key": ""}, {"x-api-key": "key-"}, {"x-api-key": "key-2"}):
            answer = await home.post(MESSAGES.path, body, wrong)
            assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
        assert (await home.get(home.admin + "/admin/status", {"x-api-key": "operators-token"})).status == 401
