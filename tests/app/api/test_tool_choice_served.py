"""`tool_choice` on three APIs over a scripted engine, and over real llama.cpp: kept, or said not to be."""

import asyncio
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.app.api.sdks import APIS, CHAT, MESSAGES, RESPONSES, Chat, raw
from tests.app.house import GatewayFixture, configured, house, nano, run
from tests.app.proxy.test_failover import pair
from tests.script import DONE, Head, Say, Step, Until, call, finish, reply, role, text, usage

CODE = "tool_choice_not_kept"
NAMES = ("web_search", "search_memory")


def made(*calls: bytes, before: str = "") -> tuple[Step, ...]:
    """A reply of calls."""
    said = [Say(text(before))] if before else []
    return (Head(), Say(role()), *said, *map(Say, calls), Say(finish("tool_calls")), Say(usage(9)), Say(DONE))


SEARCH, MEMORY = call("web_search", '{"query":"x"}'), call("search_memory", '{"query":"x"}')
AGAIN = call("web_search", '{"query":"y"}', 1)

NAMED: dict[Chat, Any] = {
    CHAT: {"type": "function", "function": {"name": "web_search"}},
    RESPONSES: {"type": "function", "name": "web_search"},
    MESSAGES: {"type": "tool", "name": "web_search"},
}
REQUIRED: dict[Chat, Any] = {CHAT: "required", RESPONSES: "required", MESSAGES: {"type": "any"}}
apis = pytest.mark.parametrize("api", APIS, ids=lambda api: type(api).__name__)


async def post(
    home: GatewayFixture, api: Chat, choice: Any, stream: bool = False, **more: Any
) -> tuple[int, str]:
    """Status and raw body."""
    chosen = {} if choice is None else {"tool_choice": choice}
    status, said = await raw(home, api, **api.tools(*NAMES), **chosen, **more, stream=stream)
    return status, said.decode()


def calls_in(api: Chat, said: str) -> list[str]:
    """Names of the calls of a whole reply."""
    reply = json.loads(said)
    if api is MESSAGES:
        return [block["name"] for block in reply["content"] if block["type"] == "tool_use"]
    if api is RESPONSES:
        return [item["name"] for item in reply["output"] if item["type"] == "function_call"]
    return [made["function"]["name"] for made in reply["choices"][0]["message"].get("tool_calls") or ()]


@apis
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("choice", "played"),
    [
        (NAMED, reply("I would rather talk.")),
        (REQUIRED, reply("I would rather talk.")),
        (NAMED, made(MEMORY, before="One moment. ")),
    ],
    ids=["words for a named call", "words for any call", "words and another call"],
)
async def test_a_reply_that_breaks_it_is_an_error_of_which_nothing_is_heard(
    tmp_path: Path, api: Chat, stream: bool, choice: dict[Chat, Any], played: tuple[Step, ...]
) -> None:
    async with house(tmp_path, dialect="vllm") as home:
        home.engine.always(*played)
        status, said = await post(home, api, choice[api], stream)
        assert status == 502
        assert "rather" not in said and "moment" not in said and "search_memory" not in said
        assert json.loads(said)["error"].get("code", CODE) == CODE
        assert len(home.engine.requests) == 2  # asked once more
        line = await home.booked()
        assert (line["code"], line["outcome"]) == (CODE, "upstream_error")
        assert (await home.metrics())("manners_engine_faults_total") == 0


@pytest.mark.parametrize("api", [CHAT, RESPONSES], ids=lambda api: type(api).__name__)
async def test_what_breaks_behind_an_allowed_call_is_told_in_the_stream(tmp_path: Path, api: Chat) -> None:
    heard = asyncio.Event()
    async with house(tmp_path, dialect="vllm", unasked_calls="text") as home:
        home.engine.play(
            Head(), Say(SEARCH), Until(heard), Say(call("search_memory", "{}", 1)), Say(finish())
        )
        body = api.body(**api.tools(*NAMES), tool_choice=NAMED[api], stream=True)
        async with home.client.post(home.url + api.path, json=body) as answer:
            assert answer.status == 200
            said = await answer.content.readany()
            heard.set()
            said += await answer.content.read()
        assert CODE.encode() in said
        assert b"[DONE]" not in said and b"response.completed" not in said


@apis
@pytest.mark.parametrize("stream", [True, False])
async def test_of_parallel_calls_the_first_is_made_where_only_one_may_be(
    tmp_path: Path, api: Chat, stream: bool
) -> None:
    single = {"type": "auto", "disable_parallel_tool_use": True} if api is MESSAGES else None
    more = {} if api is MESSAGES else {"parallel_tool_calls": False}
    async with house(tmp_path, dialect="vllm") as home:
        home.engine.always(*made(SEARCH, AGAIN))
        status, said = await post(home, api, single, stream, **more)
        assert status == 200
        assert '\\"y' not in said and '"y"' not in said
        assert stream or calls_in(api, said) == ["web_search"]


async def test_another_engine_is_asked_before_the_same_one_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as (home, live, spare):
        live.always(*reply("I would rather talk."))
        spare.always(*made(SEARCH))
        status, said = await post(home, CHAT, NAMED[CHAT])
        assert (status, calls_in(CHAT, said)) == (200, ["web_search"])
        assert (len(live.requests), len(spare.requests)) == (1, 1)
        assert (await home.metrics())("manners_failovers_total", engine="live", reason=CODE) == 1
        assert not [line for line in home.log.lines if line["event"] == "breaker"]


@apis
@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_that_was_held_to_a_schema_is_a_call_like_any_other(
    tmp_path: Path, api: Chat, stream: bool
) -> None:
    """In the reply, the metrics and the log; in pieces, as an engine streams it."""
    async with house(tmp_path) as home:
        home.engine.always(*reply('{"name": "web_', 'search", "argu', 'ments": {"q": "Mysuru"}}'))
        status, said = await post(home, api, NAMED[api], stream)
        assert status == 200 and "Mysuru" in said
        assert {CHAT: "tool_calls", RESPONSES: "function_call", MESSAGES: "tool_use"}[api] in said
        assert stream or calls_in(api, said) == ["web_search"]
        line = await home.booked()
        assert (line["calls"], line["outcome"]) == (["engine"], "ok")
        assert (await home.metrics())("manners_tool_calls_total", source="engine") == 1


async def test_llama_server_is_asked_the_other_way_the_second_time(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.engine.play(*reply("I would rather talk."))
        home.engine.always(*made(SEARCH))
        status, said = await post(home, CHAT, NAMED[CHAT])
        assert (status, calls_in(CHAT, said)) == (200, ["web_search"])
        first, second = home.engine.requests
        assert first.body["response_format"]["type"] == "json_schema" and first.body["tool_choice"] == "none"
        assert "response_format" not in second.body and second.body["tool_choice"] == "required"


# Real llama.cpp.


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
async def test_a_real_engine_makes_the_call_whatever_is_asked(tmp_path: Path) -> None:
    """The named one, or some where one is required."""
    async with run(configured(tmp_path, {"nano": nano()}, annie={"live": "nano"})) as real:
        await real.gateway.pool.backend(real.gateway.config.engines["nano"], "annie").up()
        for api, question in product(APIS, ("Hello!", "What did Priya say about the trip?")):
            for name in NAMES:
                choice = json.loads(json.dumps(NAMED[api]).replace("web_search", name))
                status, said = await post(real, api, choice, **api.turn(question), temperature=0)
                assert (status, calls_in(api, said)) == (200, [name]), said
            status, said = await post(real, api, REQUIRED[api], **api.turn(question), temperature=0)
            assert status == 200 and calls_in(api, said), said
