"""The `openai` package against the gateway: continued prompts, and vectors."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.app.house import GatewayFixture, house
from tests.app.proxy.test_failover import pair
from tests.script import DONE, CloseNow, Hang, Head, Say, Step, event, status, usage

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"model": "annie", "prompt": "Once upon"}
BODIES = {"completions": ASKED, "embeddings": {"model": "annie", "input": "x"}}
VECTORS = {"object": "list", "model": "scripted", "usage": {"prompt_tokens": 3, "total_tokens": 3},
           "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.25]}]}  # fmt: skip


def words(text: str, reason: str | None = None) -> bytes:
    """A frame of a completion, as engines send it."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    return event({"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})


def tale(*said: str, reason: str = "stop") -> tuple[Step, ...]:
    """A whole completion."""
    return (Head(), *[Say(words(t)) for t in said], Say(words("", reason)), Say(usage(len(said))), Say(DONE))


async def test_a_whole_completion(home: GatewayFixture, client: AsyncOpenAI) -> None:
    """Text, reason, usage and model in their places; the engine gets its own name for the model."""
    home.engine.play(*tale(" a time", ".", reason="length"))
    done = await client.completions.create(**ASKED, max_tokens=5, user="u")
    assert (done.choices[0].text, done.choices[0].finish_reason) == (" a time.", "length")
    assert done.usage is not None and (done.usage.prompt_tokens, done.usage.completion_tokens) == (7, 2)
    assert (done.model, done.object) == ("annie", "text_completion") and done.id.startswith("cmpl-")
    seen = await home.engine.request()
    assert seen.path == "/v1/completions"
    assert seen.body == {"prompt": "Once upon", "max_tokens": 5, "user": "u", "model": "scripted",
                         "stream": True, "stream_options": {"include_usage": True}}  # fmt: skip


@pytest.mark.parametrize("include_usage", [False, True])
async def test_a_stream(home: GatewayFixture, client: AsyncOpenAI, include_usage: bool) -> None:
    """Each delta as it came; usage for those who asked."""
    home.engine.play(*tale(" a", " time"))
    options: Any = {"stream_options": {"include_usage": True}} if include_usage else {}
    chunks = [c async for c in await client.completions.create(**ASKED, **options, stream=True)]
    texts = [c.choices[0].text for c in chunks if c.choices]
    assert texts == [" a", " time", ""]
    assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None, None, "stop"]
    assert [c.usage.completion_tokens for c in chunks if c.usage] == ([2] if include_usage else [])
    assert len({(c.id, c.model, c.object) for c in chunks}) == 1
    assert (await home.booked())["first_content"] is not None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"echo": True}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 9}, "n"),
    ],
)
async def test_what_cannot_be_served_is_refused(
    home: GatewayFixture, client: AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(**{**ASKED, **fields})
    assert (caught.value.param or "").startswith(param)


FAILED: dict[str, tuple[Step, ...]] = {"500": status(500), "closed": (CloseNow(),), "silent": (Hang(),)}


@pytest.mark.parametrize("fault", FAILED)
@pytest.mark.parametrize("surface", ["completions", "embeddings"])
async def test_the_fallback_answers_while_nothing_was_seen(
    tmp_path_factory: pytest.TempPathFactory, fault: str, surface: str
) -> None:
    """The same failover as for chat."""
    async with pair(tmp_path_factory.mktemp("pair")) as (home, live, spare):
        live.play(*FAILED[fault])
        spare.play(*(tale("Hi.") if surface == "completions" else status(200, VECTORS)))
        body = BODIES[surface]
        async with home.client.post(f"{home.url}/v1/{surface}", json=body) as response:
            assert (response.status, response.headers["x-manners-engine"]) == (200, "spare")
        assert (await home.metrics())("manners_failovers_total", engine="live") == 1


async def test_vectors(home: GatewayFixture, client: AsyncOpenAI) -> None:
    """As the engine made them, under our model's name."""
    home.engine.play(*status(200, VECTORS))
    done = await client.embeddings.create(model="annie", input=["x"], encoding_format="float", dimensions=2)
    assert (done.model, done.data[0].embedding, done.usage.prompt_tokens) == ("annie", [0.5, -1.25], 3)
    seen = await home.engine.request()
    assert seen.path == "/v1/embeddings"
    assert seen.body == {"model": "scripted", "input": ["x"], "encoding_format": "float", "dimensions": 2}
    assert (await home.booked())["outcome"] == "ok"
    assert home.is_quiet()


@pytest.mark.parametrize(
    ("steps", "fields", "kind"),
    [
        (status(200, {"nothing": 1}), {}, openai.InternalServerError),
        (status(200, b"no json"), {}, openai.InternalServerError),
        (status(500), {}, openai.InternalServerError),
        (status(400, {"error": {"message": "too long"}}), {}, openai.BadRequestError),
        ((), {"input": []}, openai.BadRequestError),
        ((), {"input": {"image": 1}}, openai.BadRequestError),
        ((), {"model": "nobody"}, openai.NotFoundError),
    ],
)
async def test_no_vectors(
    home: GatewayFixture,
    client: AsyncOpenAI,
    steps: tuple[Step, ...],
    fields: dict[str, Any],
    kind: type[Exception],
) -> None:
    home.engine.play(*steps)
    with pytest.raises(kind):
        await client.embeddings.create(**{"model": "annie", "input": "x", **fields})


@pytest.mark.parametrize("code", [404, 405, 501])
@pytest.mark.parametrize("surface", ["completions", "embeddings"])
async def test_an_engine_without_this_api_is_not_to_blame(
    tmp_path_factory: pytest.TempPathFactory, code: int, surface: str
) -> None:
    """Else anybody could ask a model's engine out of service."""
    async with house(tmp_path_factory.mktemp("no")) as home:
        for _ in range(5):
            home.engine.play(*status(code, {"error": {"message": "what?"}}))
            body = BODIES[surface]
            async with home.client.post(f"{home.url}/v1/{surface}", json=body) as response:
                assert response.status == 400
                assert (await response.json())["error"]["code"] == "unsupported_by_engine"
        assert (await home.ask()).text == "Hello there."
