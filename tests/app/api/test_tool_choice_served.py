"""`tool_choice` on three APIs over a scripted engine, and over real llama.cpp: kept, or said not to be."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.app.house import HELLO, GatewayFixture, configured, house, nano, run
from tests.app.proxy.test_failover import pair
from tests.script import DONE, Head, Say, Step, Until, call, finish, reply, role, text, usage

MODELS = Path(__file__).parents[3] / "models"
CODE = "tool_choice_not_kept"
NAMES = ("web_search", "search_memory")
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def made(*calls: bytes, before: str = "") -> tuple[Step, ...]:
    """A reply of calls."""
    said = [Say(text(before))] if before else []
    return (Head(), Say(role()), *said, *map(Say, calls), Say(finish("tool_calls")), Say(usage(9)), Say(DONE))


SEARCH, MEMORY = call("web_search", '{"query":"x"}'), call("search_memory", '{"query":"x"}')
AGAIN = call("web_search", '{"query":"y"}', 1)

CHAT_TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
ASKS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HELLO, "tools": CHAT_TOOLS},
    "responses": {"input": "Hello!", "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]},
    "messages": {"messages": HELLO, "max_tokens": 64, "tools": [{"name": name, "input_schema": SCHEMA} for name in NAMES]},
}  # fmt: skip
APIS = tuple(ASKS)
CHAT = "chat/completions"
NAMED: dict[str, Any] = {
    "chat/completions": {"tool_choice": {"type": "function", "function": {"name": "web_search"}}},
    "responses": {"tool_choice": {"type": "function", "name": "web_search"}},
    "messages": {"tool_choice": {"type": "tool", "name": "web_search"}},
}
REQUIRED: dict[str, Any] = {
    "chat/completions": {"tool_choice": "required"},
    "responses": {"tool_choice": "required"},
    "messages": {"tool_choice": {"type": "any"}},
}
SINGLE: dict[str, Any] = {
    "chat/completions": {"parallel_tool_calls": False},
    "responses": {"parallel_tool_calls": False},
    "messages": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
}


async def post(
    home: GatewayFixture, api: str, fields: dict[str, Any], stream: bool = False
) -> tuple[int, str]:
    """Status and raw body."""
    body = {"model": "annie", **ASKS[api], **fields, "stream": stream}
    async with home.client.post(f"{home.url}/v1/{api}", json=body) as answer:
        return answer.status, await answer.text()


def calls_in(api: str, raw: str) -> list[str]:
    """Names of the calls of a whole reply."""
    reply = json.loads(raw)
    if api == "messages":
        return [block["name"] for block in reply["content"] if block["type"] == "tool_use"]
    if api == "responses":
        return [item["name"] for item in reply["output"] if item["type"] == "function_call"]
    return [made["function"]["name"] for made in reply["choices"][0]["message"].get("tool_calls") or ()]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (NAMED, reply("I would rather talk.")),
        (REQUIRED, reply("I would rather talk.")),
        (NAMED, made(MEMORY)),
        (NAMED, made(MEMORY, before="One moment. ")),
    ],
    ids=["words for a named call", "words for any call", "another call", "words and another call"],
)
async def test_a_reply_that_breaks_it_is_an_error_of_which_nothing_is_heard(
    tmp_path: Path, api: str, stream: bool, choice: dict[str, Any], said: tuple[Step, ...]
) -> None:
    async with house(tmp_path, dialect="vllm") as home:
        home.engine.always(*said)
        status, raw = await post(home, api, choice[api], stream)
        assert status == 502
        assert "rather" not in raw and "moment" not in raw and "search_memory" not in raw
        assert json.loads(raw)["error"].get("code", CODE) == CODE
        assert len(home.engine.requests) == 2  # asked once more
        line = await home.booked()
        assert (line["code"], line["outcome"]) == (CODE, "upstream_error")
        assert (await home.metrics())("manners_engine_faults_total") == 0


@pytest.mark.parametrize("api", ["chat/completions", "responses"])
async def test_what_breaks_behind_an_allowed_call_is_told_in_the_stream(tmp_path: Path, api: str) -> None:
    heard = asyncio.Event()
    async with house(tmp_path, dialect="vllm", unasked_calls="text") as home:
        home.engine.play(
            Head(), Say(SEARCH), Until(heard), Say(call("search_memory", "{}", 1)), Say(finish())
        )
        body = {"model": "annie", **ASKS[api], **NAMED[api], "stream": True}
        async with home.client.post(f"{home.url}/v1/{api}", json=body) as answer:
            assert answer.status == 200
            raw = await answer.content.readany()
            heard.set()
            raw += await answer.content.read()
        assert CODE.encode() in raw
        assert b"[DONE]" not in raw and b"response.completed" not in raw


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
async def test_of_parallel_calls_the_first_is_made_where_only_one_may_be(
    tmp_path: Path, api: str, stream: bool
) -> None:
    async with house(tmp_path, dialect="vllm") as home:
        home.engine.always(*made(SEARCH, AGAIN))
        status, raw = await post(home, api, SINGLE[api], stream)
        assert status == 200
        assert '\\"y' not in raw and '"y"' not in raw
        if not stream:
            assert calls_in(api, raw) == ["web_search"]


async def test_another_engine_is_asked_before_the_same_one_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as (home, live, spare):
        live.always(*reply("I would rather talk."))
        spare.always(*made(SEARCH))
        status, raw = await post(home, CHAT, NAMED[CHAT])
        assert (status, calls_in(CHAT, raw)) == (200, ["web_search"])
        assert (len(live.requests), len(spare.requests)) == (1, 1)
        assert (await home.metrics())("manners_failovers_total", engine="live", reason=CODE) == 1
        assert not [line for line in home.log.lines if line["event"] == "breaker"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_that_was_held_to_a_schema_is_a_call_like_any_other(
    tmp_path: Path, api: str, stream: bool
) -> None:
    """In the reply, the metrics and the log; in pieces, as an engine streams it."""
    async with house(tmp_path) as home:
        home.engine.always(*reply('{"name": "web_', 'search", "argu', 'ments": {"query": "Mysuru"}}'))
        status, raw = await post(home, api, NAMED[api], stream)
        assert status == 200 and "Mysuru" in raw
        assert (
            "tool_use" if api == "messages" else "function_call" if api == "responses" else "tool_calls"
        ) in raw
        if not stream:
            assert calls_in(api, raw) == ["web_search"]
        line = await home.booked()
        assert (line["calls"], line["outcome"]) == (["engine"], "ok")
        assert (await home.metrics())("manners_tool_calls_total", source="engine") == 1


async def test_llama_server_is_asked_the_other_way_the_second_time(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.engine.play(*reply("I would rather talk."))
        home.engine.always(*made(SEARCH))
        status, raw = await post(home, CHAT, NAMED[CHAT])
        assert (status, calls_in(CHAT, raw)) == (200, ["web_search"])
        first, second = home.engine.requests
        assert first.body["response_format"]["type"] == "json_schema" and first.body["tool_choice"] == "none"
        assert "response_format" not in second.body and second.body["tool_choice"] == "required"


# Real llama.cpp.


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """annie-nano behind a gateway."""
    base = tmp_path_factory.mktemp("state")
    async with run(configured(base, {"nano": nano()}, annie={"live": "nano"})) as home:
        await home.gateway.pool.backend(home.gateway.config.engines["nano"], "annie").up()
        yield home


QUESTIONS = ("Hello!", "What did Priya say about the trip?")


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_real_engine_makes_the_call_whatever_is_asked(
    real: GatewayFixture, api: str, question: str
) -> None:
    """The named one, or some where one is required."""
    asked = (
        {"input": question} if api == "responses" else {"messages": [{"role": "user", "content": question}]}
    )
    for name in NAMES:
        fields = json.loads(json.dumps(NAMED[api]).replace("web_search", name))
        status, raw = await post(real, api, {**fields, **asked, "temperature": 0})
        assert (status, calls_in(api, raw)) == (200, [name]), raw
    status, raw = await post(real, api, {**REQUIRED[api], **asked, "temperature": 0})
    assert status == 200 and calls_in(api, raw), raw
