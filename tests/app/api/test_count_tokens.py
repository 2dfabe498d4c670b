"""`/v1/messages/count_tokens`: the engine's own count of the prompt, in Anthropic's words."""

from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.app.house import HELLO, GatewayFixture, configured, house, nano, run
from tests.script import status

HI: list[Any] = [*HELLO]
TOOLS: list[Any] = [
    {"name": "web_search", "description": "Search.", "input_schema": {"type": "object", "properties": {}}}
]
COUNTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-server": (
        "/v1/chat/completions/input_tokens",
        {"input_tokens": 42, "object": "response.input_tokens"},
    ),
    "vllm": ("/tokenize", {"count": 42, "max_model_len": 4096, "tokens": [1] * 42}),
}


def client(home: GatewayFixture) -> anthropic.AsyncAnthropic:
    """A client as a stranger would make one."""
    return anthropic.AsyncAnthropic(base_url=home.url, api_key="any", max_retries=0)


@pytest.mark.parametrize("dialect", COUNTS)
async def test_the_engine_counts_what_it_would_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    path, said = COUNTS[dialect]
    async with house(tmp_path, dialect=dialect) as home:
        asked: list[dict[str, Any]] = []

        async def count(seen: Any) -> Any:
            asked.append({"path": seen.path, **seen.body})
            return status(200, said)

        monkeypatch.setattr(home.engine, "script_for", count)
        async with client(home) as it:
            counted = await it.messages.count_tokens(
                model="annie", messages=HI, system="Be brief.", tools=TOOLS, tool_choice={"type": "any"},
                extra_body={"stream": True},  # as of the request that is counted
            )  # fmt: skip
        assert counted.input_tokens == 42
        (body,) = asked
        assert body.pop("path") == path
        assert body.keys() == {"model", "messages", "tools", "chat_template_kwargs"}
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert body["chat_template_kwargs"] == {"enable_thinking": False}


async def test_another_engine_counts_nothing_and_says_so(tmp_path: Path) -> None:
    async with house(tmp_path, dialect="openai") as home:
        async with client(home) as it:
            with pytest.raises(anthropic.BadRequestError, match="counts no tokens"):
                await it.messages.count_tokens(model="annie", messages=HI)
        assert home.engine.requests == []


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (status(200, {"input_tokens": None}), 502),
        (status(200, {"input_tokens": -1}), 502),
        (status(200, {"input_tokens": "many"}), 502),
        (status(200, b"no JSON"), 502),
        (status(404, {"error": {"message": "File Not Found"}}), 400),
        (status(500, {"error": {"message": "x"}}), 502),
    ],
)
async def test_what_is_no_count_is_an_error(tmp_path: Path, steps: Any, code: int) -> None:
    async with house(tmp_path) as home:
        home.engine.always(*steps)
        body = {"model": "annie", "messages": HELLO}
        async with home.client.post(f"{home.url}/v1/messages/count_tokens", json=body) as answer:
            assert answer.status == code
            assert (await answer.json())["type"] == "error"


@pytest.mark.engine
async def test_a_real_engines_count_is_the_usage_of_the_reply(tmp_path: Path) -> None:
    made = configured(tmp_path, {"nano": nano()}, annie={"live": "nano"})
    async with run(made) as home, client(home) as it:
        for more in ({}, {"tools": TOOLS, "system": "Be brief."}):
            asked: Any = {"model": "annie", "messages": HELLO, **more}
            counted = await it.messages.count_tokens(**asked)
            reply = await it.messages.create(**asked, max_tokens=1)
            usage = reply.usage
            assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
