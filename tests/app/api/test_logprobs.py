"""`logprobs` through the gateway: only of what the caller hears."""

import json
from typing import Any

import pytest

from tests.app.house import GatewayFixture
from tests.script import DONE, Head, Say, finish, usage

pytestmark = pytest.mark.asyncio(loop_scope="module")


def token(said: str, field: str = "content") -> Say:
    """A chunk of one token."""
    entry = {"token": said, "logprob": -0.5, "bytes": list(said.encode()), "top_logprobs": []}
    choice = {"index": 0, "delta": {field: said}, "logprobs": {"content": [entry]}, "finish_reason": None}
    return Say(b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode())


def told(choices: list[Any]) -> list[str]:
    return [one["token"] for choice in choices for one in (choice["logprobs"] or {}).get("content") or ()]


async def ask(home: GatewayFixture, stream: bool, **more: Any) -> list[str]:
    """The tokens that a caller is told of."""
    answer = await home.ask(logprobs=True, stream=stream, **more)
    assert answer.status == 200
    if not stream:
        return told(answer.json["choices"])
    return told([choice for frame in answer.frames if frame != "[DONE]" for choice in frame["choices"]])


@pytest.mark.parametrize("stream", [True, False])
async def test_thoughts_and_calls_have_none(home: GatewayFixture, stream: bool) -> None:
    said = ["<think>", "SECRET", "</think>", "Yes", "."]
    steps = [token("SECRET", "reasoning_content"), *(token(one) for one in said)]
    home.engine.play(Head(), *steps, Say(finish()), Say(usage(9)), Say(DONE))
    assert await ask(home, stream) == []


async def test_a_reply_of_which_something_was_removed_has_none_and_the_header_says_so(
    home: GatewayFixture,
) -> None:
    """Also of the words before it."""
    said = ["Yes", ".", "<tool_call>", '{"name": "f", "arguments": {}}', "</tool_call>"]
    home.engine.play(Head(), *map(token, said), Say(finish()), Say(usage(9)), Say(DONE))
    answer = await home.ask(logprobs=True)
    assert answer.json["choices"][0]["logprobs"] is None
    assert answer.headers["x-manners-ignored"] == "logprobs"


async def test_llama_server_tells_none_beside_tools(home: GatewayFixture) -> None:
    """So it is not asked; the error names the field."""
    tool = {"type": "function", "function": {"name": "f"}}
    answer = await home.ask(logprobs=True, tools=[tool])
    assert (answer.status, answer.error["code"], answer.error["param"]) == (
        400,
        "unsupported_by_engine",
        "logprobs",
    )
    assert home.engine.requests == []
