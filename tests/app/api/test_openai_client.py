"""The `openai` package against the gateway: what a stranger's client sees."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.app.house import HELLO, TOOLS, House
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    Hang,
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

ASKED: dict[str, Any] = {"model": "annie", "messages": HELLO}


async def test_a_whole_reply(home: House, client: AsyncOpenAI) -> None:
    """Text, finish reason, usage and model in their places."""
    done = await client.chat.completions.create(**ASKED)
    (choice,) = done.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        "Hello there.",
        "stop",
    )
    assert choice.message.tool_calls is None
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (7, 2, 9)
    assert (done.model, done.object) == ("annie", "chat.completion")
    assert done.id.startswith("chatcmpl-")


@pytest.mark.parametrize("include_usage", [None, False, True])
async def test_a_stream_counts_only_when_it_is_asked_to(
    home: House, client: AsyncOpenAI, include_usage: bool | None
) -> None:
    """The engine is always asked for usage; the caller gets the chunk only if it asked, too."""
    options: Any = {} if include_usage is None else {"stream_options": {"include_usage": include_usage}}
    chunks = [c async for c in await client.chat.completions.create(**ASKED, **options, stream=True)]
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert deltas[0].role == "assistant"
    assert "".join(d.content or "" for d in deltas) == "Hello there."
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    counted = [c for c in chunks if c.usage is not None]
    assert len(counted) == (1 if include_usage else 0)
    if include_usage:
        assert chunks[-1].choices == []
        assert counted[0].usage is not None and counted[0].usage.completion_tokens == 2
    assert len({(c.id, c.created, c.model, c.object) for c in chunks}) == 1


CALLS: dict[str, tuple[Step, ...]] = {
    "in the API's field": (Say(call("web_search", '{"q": "rain"}')), Say(finish("tool_calls"))),
    "as hermes text": (
        Say(text('<tool_call>\n{"name": "web_search", "arguments": {"q": "rain"}}\n</tool_call>')),
        Say(finish()),
    ),
    "as Qwen's XML": (
        Say(
            text(
                "<tool_call>\n<function=web_search>\n<parameter=q>\nrain\n</parameter>\n</function>\n</tool_call>"
            )
        ),
        Say(finish()),
    ),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", CALLS)
async def test_a_tool_call_and_its_answer(home: House, client: AsyncOpenAI, name: str, stream: bool) -> None:
    """However the engine writes a call, the client can use it, and its result makes the round."""
    import json

    home.engine.play(Head(), Say(role()), *CALLS[name], Say(usage(9)), Say(DONE))
    asked: Any = {**ASKED, "tools": TOOLS}
    if stream:
        async with client.chat.completions.stream(**asked) as events:
            done = await events.get_final_completion()
    else:
        done = await client.chat.completions.create(**asked)
    choice = done.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content in (None, "")
    assert choice.message.tool_calls is not None
    (made,) = choice.message.tool_calls
    assert made.type == "function" and made.id
    assert (made.function.name, json.loads(made.function.arguments)) == ("web_search", {"q": "rain"})
    home.engine.play(*reply("It will rain."))
    turns = [*HELLO, choice.message.model_dump(exclude_none=True),
             {"role": "tool", "tool_call_id": made.id, "content": "rain"}]  # fmt: skip
    answer = await client.chat.completions.create(**{**asked, "messages": turns})
    assert answer.choices[0].message.content == "It will rain."
    sent = (await home.engine.request(2)).body["messages"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == made.id


async def test_a_thought_is_nowhere_in_the_reply(home: House, client: AsyncOpenAI) -> None:
    """Neither in the engine's field nor in tags, streamed or whole."""
    said = (
        Head(),
        Say(thought("SECRET one")),
        Say(text("<think>SECRET two</think>Yes.")),
        Say(finish()),
        Say(DONE),
    )
    home.engine.always(*said)
    whole = await client.chat.completions.create(**ASKED)
    chunks = [c async for c in await client.chat.completions.create(**ASKED, stream=True)]
    assert whole.choices[0].message.content == "Yes."
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Yes."
    assert "SECRET" not in whole.model_dump_json() + "".join(c.model_dump_json() for c in chunks)


ERRORS: list[tuple[tuple[Step, ...], dict[str, Any], type[openai.APIStatusError], str | None]] = [
    (reply(), {"model": "nobody"}, openai.NotFoundError, "model_not_found"),
    (reply(), {"n": 9}, openai.BadRequestError, "invalid_value"),
    (reply(), {"user": "x" * 9999}, openai.APIStatusError, "body_too_large"),
    (status(400, {"error": {"message": "no", "code": "too_long"}}), {}, openai.BadRequestError, "too_long"),
    (status(422, {}), {}, openai.UnprocessableEntityError, "engine_error"),
    (status(500), {}, openai.InternalServerError, "upstream_status"),
    (status(503), {}, openai.InternalServerError, "engine_busy"),
    ((Head(), Say(b"data: {\n\n")), {}, openai.InternalServerError, "upstream_malformed"),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("steps", "fields", "kind", "code"), ERRORS)
async def test_errors_are_the_classes_that_clients_catch(
    home: House,
    client: AsyncOpenAI,
    steps: tuple[Step, ...],
    fields: dict[str, Any],
    kind: type[openai.APIStatusError],
    code: str,
    stream: bool,
) -> None:
    """Before the first byte an error is raised by the call itself, streaming or not."""
    home.engine.play(*steps)
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(**{**ASKED, **fields}, stream=stream)
    assert caught.value.code == code
    assert caught.value.request_id


async def test_a_stream_that_breaks_off_raises(home: House, client: AsyncOpenAI) -> None:
    """What came was read; then the client raises, and does not take the reply for a whole one."""
    home.engine.play(Head(), Say(text("One")), Wait(0.02), Say(text(" two")), Wait(0.02), Reset())
    said = []
    stream = await client.chat.completions.create(**ASKED, stream=True)

    async def read() -> None:
        async for c in stream:
            said.append(c.choices[0].delta.content or "")

    with pytest.raises(openai.APIError) as caught:
        await read()
    assert "".join(said) == "One two"
    assert caught.value.code == "upstream_truncated"


async def test_closing_a_stream_stops_the_engine(home: House, client: AsyncOpenAI) -> None:
    """Barge-in: the user speaks, the client closes, the engine's place is free."""
    home.engine.play(Head(), Say(text("One")), Hang())
    stream = await client.chat.completions.create(**ASKED, stream=True)
    async for c in stream:
        if c.choices[0].delta.content:
            break
    await stream.close()
    async with asyncio.timeout(PATIENCE):
        await (await home.engine.request()).gone.wait()
    assert (await home.booked())["outcome"] == "client_cancel"


async def test_the_first_words_are_not_held_back(home: House, client: AsyncOpenAI) -> None:
    """A chunk is with the caller before the engine says the next one."""
    go = [asyncio.Event() for _ in range(3)]
    words = [step for i, event in enumerate(go) for step in (Say(text(f" w{i}")), Until(event))]
    home.engine.play(
        Head(), Say(chunk({"role": "assistant", "content": None})), *words, Say(finish()), Say(DONE)
    )
    heard = []
    async with asyncio.timeout(PATIENCE):
        async for c in await client.chat.completions.create(**ASKED, stream=True):
            if content := c.choices[0].delta.content:
                heard.append(content)
                go[len(heard) - 1].set()
    assert heard == [" w0", " w1", " w2"]


async def test_models_can_be_listed(client: AsyncOpenAI) -> None:
    """As a chat frontend does at its start."""
    assert [m.id async for m in client.models.list()] == ["annie"]
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody")
