"""Several choices of one request: `n`, and lists of prompts. Clients are the official ones."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.app.house import HELLO, GatewayFixture, eventually, house
from tests.app.proxy.test_failover import pair
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    Hang,
    Head,
    Reset,
    Say,
    Step,
    finish,
    reply,
    status,
    text,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"model": "annie", "messages": HELLO}


@pytest.fixture(autouse=True)
def _fresh(home: GatewayFixture) -> Iterator[None]:
    yield
    home.engine.choose = lambda _: None


def by_seed(home: GatewayFixture, *scripts: tuple[Step, ...]) -> None:
    """The choice with seed 10 + i is answered by script i."""
    home.engine.choose = lambda seen: scripts[seen.body["seed"] - 10] if "seed" in seen.body else None


@pytest.mark.parametrize("stream", [True, False])
async def test_each_choice_is_a_reply_of_its_own(
    home: GatewayFixture, client: AsyncOpenAI, stream: bool
) -> None:
    """Each with its text and its finish, under its index."""
    by_seed(home, reply("One."), reply("Two."), reply("Three."))
    asked: Any = {**ASKED, "n": 3, "seed": 10}
    if stream:
        async with client.chat.completions.stream(**asked) as events:
            done = await events.get_final_completion()
    else:
        done = await client.chat.completions.create(**asked)
    assert [(c.index, c.message.content, c.finish_reason) for c in done.choices] == [
        (0, "One.", "stop"),
        (1, "Two.", "stop"),
        (2, "Three.", "stop"),
    ]


async def test_usage_counts_the_prompt_once_and_every_choice(
    home: GatewayFixture, client: AsyncOpenAI
) -> None:
    by_seed(home, reply("One."), reply("One ", "two ", "three."))
    whole = await client.chat.completions.create(**ASKED, n=2, seed=10)
    counted: Any = {**ASKED, "n": 2, "seed": 10, "stream_options": {"include_usage": True}}
    stream = await client.chat.completions.create(**counted, stream=True)
    *_, last = [chunk async for chunk in stream]
    assert whole.usage is not None and last.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (7, 4)
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (7, 4)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_choice_that_fails_before_the_first_byte_fails_the_request(
    home: GatewayFixture, client: AsyncOpenAI, stream: bool
) -> None:
    """By status; no other choice is asked for."""
    by_seed(home, status(400, {"error": {"message": "no", "code": "too_long"}}), reply("Two."))
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**ASKED, n=2, seed=10, stream=stream)
    assert caught.value.code == "too_long"
    assert [seen.body["seed"] for seen in home.engine.requests] == [10]
    await eventually(home.is_quiet)


async def test_a_choice_that_breaks_off_ends_the_stream_with_one_error(home: GatewayFixture) -> None:
    """No [DONE], and nothing behind it: the third choice is not asked for."""
    by_seed(home, reply("One."), (Head(), Say(text("Two")), Reset()), reply("Three."))
    async with home.begin(n=3, seed=10) as response:
        raw = await response.read()
    assert b"One." in raw and b"Two" in raw and raw.count(b'"finish_reason":"stop"') == 1
    assert raw.count(b'"error"') == 1 and raw.rstrip().splitlines()[-1].startswith(b'data: {"error"')
    assert b"[DONE]" not in raw and len(home.engine.requests) == 2
    await eventually(home.is_quiet)


@pytest.mark.parametrize("choice", [0, 1])
async def test_a_caller_who_leaves_frees_the_choice_that_runs(home: GatewayFixture, choice: int) -> None:
    by_seed(home, *[reply("Hm")] * choice, (Head(), Say(text("Hm")), Hang()), reply("Hm"))
    async with home.begin(n=3, seed=10) as response:
        await response.content.readany()
        seen = await home.engine.request(choice + 1)
        response.close()
    async with asyncio.timeout(PATIENCE):
        await seen.gone.wait()
    await eventually(home.is_quiet)
    assert (await home.booked())["outcome"] == "client_cancel"
    assert len(home.engine.requests) == choice + 1


async def test_one_place_is_enough_for_all_choices(tmp_path: Path) -> None:
    """They are asked for in turn: `n` is not sent, `seed` counts up, and each request has an id of its own."""
    async with house(tmp_path, concurrency=1, queue=0) as home:
        by_seed(home, reply("One."), reply("Two."), reply("Three."))
        answer = await home.ask(n=3, seed=10)
        said = [choice["message"]["content"] for choice in answer.json["choices"]]
        assert said == ["One.", "Two.", "Three."]
        sent = home.engine.requests
        assert [(seen.body["seed"], "n" in seen.body) for seen in sent] == [(s, False) for s in (10, 11, 12)]
        assert len({seen.headers["x-request-id"] for seen in sent}) == 3
        assert home.is_quiet()


# Lists of prompts.


def echoing(seen: Any) -> Any:
    """A completion that repeats its prompt."""
    payload = {"choices": [{"index": 0, "text": str(seen.body["prompt"]), "finish_reason": None}]}
    return (
        Head(),
        Say(b"data: %b\n\n" % json.dumps(payload).encode()),
        Say(finish()),
        Say(usage(1)),
        Say(DONE),
    )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("fields", "heard"),
    [
        ({"prompt": ["a", "b"]}, ["a", "b"]),
        ({"prompt": ["a", "b"], "n": 2}, ["a", "a", "b", "b"]),
        ({"prompt": [[1, 2], [3]]}, ["[1, 2]", "[3]"]),
        ({"prompt": "a", "n": 2}, ["a", "a"]),
    ],
)
async def test_every_prompt_is_continued(
    home: GatewayFixture, client: AsyncOpenAI, fields: dict[str, Any], heard: list[str], stream: bool
) -> None:
    """In the order of the prompts, the choices of each together."""
    home.engine.choose = echoing
    if stream:
        said = dict.fromkeys(range(len(heard)), "")
        async for chunk in await client.completions.create(model="annie", **fields, stream=True):
            for choice in chunk.choices:
                said[choice.index] += choice.text
        assert list(said.values()) == heard
    else:
        done = await client.completions.create(model="annie", **fields)
        assert [(c.index, c.text) for c in done.choices] == list(enumerate(heard))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"prompt": ["a"] * 17}, "invalid_value"),
        ({"prompt": ["a"] * 16, "n": 3}, "too_many_choices"),
        ({"prompt": []}, "invalid_value"),
        ({"prompt": ["a", [1]]}, "invalid_value"),
    ],
)
async def test_too_many_prompts_are_refused(
    home: GatewayFixture, client: AsyncOpenAI, fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model="annie", **fields)
    assert caught.value.code == code
    assert home.engine.requests == []


async def test_choices_go_to_another_engine_together(tmp_path: Path) -> None:
    """All of them, if one fails before the caller has seen anything."""
    async with pair(tmp_path) as (home, live, spare):
        live.always(*status(500))
        spare.always(*reply("Fine."))
        answer = await home.ask(n=2)
        assert [choice["message"]["content"] for choice in answer.json["choices"]] == ["Fine.", "Fine."]
        assert answer.headers["x-manners-engine"] == "spare"
