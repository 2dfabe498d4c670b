"""The `anthropic` package against the gateway: the Messages API over the one core."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.app.house import HELLO, House, house
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    Hang,
    Head,
    Reset,
    Say,
    Step,
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

ASKED: dict[str, Any] = {"model": "annie", "messages": HELLO, "max_tokens": 100}
TOOLS: list[Any] = [{"name": "web_search", "description": "Search.", "input_schema": {"type": "object"}}]
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(shared: House) -> AsyncIterator[AsyncAnthropic]:
    """A client as a stranger would make one."""
    async with AsyncAnthropic(base_url=shared.url, api_key="any", max_retries=0) as it:
        yield it


async def post(home: House, **more: Any) -> tuple[int, bytes]:
    """One raw request."""
    body = {**ASKED, **more}
    async with home.client.post(f"{home.url}/v1/messages", json=body) as response:
        return response.status, await response.read()


def events(raw: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each named as its type, and of a type that the package knows."""
    found = []
    *frames, rest = raw.split(b"\n\n")
    assert rest == b""
    for frame in frames:
        name, data = frame.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        if event["type"] != "error":
            EVENT.validate_python(event, strict=False)
        found.append(event)
    return found


def is_in_order(row: list[dict[str, Any]]) -> bool:
    """Whether blocks open and close one after the other, between one start and one stop."""
    opened = -1
    is_open = False
    for event in row[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open
            opened, is_open = opened + 1, True
        assert is_open and event["index"] == opened
        is_open = event["type"] != "content_block_stop"
    ends = [row[0]["type"], row[-2]["type"], row[-1]["type"]]
    return ends == ["message_start", "message_delta", "message_stop"] and not is_open


async def test_a_whole_reply(home: House, client: AsyncAnthropic) -> None:
    """Text, stop reason, usage and model in their places."""
    done = await client.messages.create(**ASKED)
    assert [block.model_dump(exclude_none=True) for block in done.content] == [
        {"type": "text", "text": "Hello there."}
    ]
    assert (done.stop_reason, done.stop_sequence, done.role, done.model) == (
        "end_turn", None, "assistant", "annie",
    )  # fmt: skip
    assert (done.usage.input_tokens, done.usage.output_tokens) == (7, 2)
    assert done.id.startswith("msg_")


async def test_a_stream(home: House, client: AsyncAnthropic) -> None:
    """The package puts it together, and every event is one that it knows."""
    async with client.messages.stream(**ASKED) as stream:
        said = "".join([piece async for piece in stream.text_stream])
        done = await stream.get_final_message()
    assert said == "Hello there."
    assert (done.stop_reason, done.usage.output_tokens, done.usage.input_tokens) == ("end_turn", 2, 7)
    row = events((await post(home, stream=True))[1])
    assert is_in_order(row)
    assert [e["delta"]["text"] for e in row if e["type"] == "content_block_delta"] == ["Hello", " there."]


async def test_what_the_engine_is_asked(home: House, client: AsyncAnthropic) -> None:
    """Every field in the engine's words; what goes nowhere is named."""
    answer = await client.messages.with_raw_response.create(
        **ASKED,
        system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
        stop_sequences=["X"],
        tools=TOOLS,
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        metadata={"user_id": "u"},
        extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 20, "service_tier": "auto"},
    )
    sent = (await home.engine.request()).body
    assert sent["messages"][0] == {"role": "system", "content": "Be\n\nbrief."}
    assert sent["tools"] == [
        {"type": "function",
         "function": {"name": "web_search", "description": "Search.", "parameters": {"type": "object"}}}
    ]  # fmt: skip
    wanted = {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "stop": None, "user": "u",
              "tool_choice": "auto", "parallel_tool_calls": False, "stream": True}  # fmt: skip
    assert {name: sent.get(name) for name in wanted} == wanted
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert answer.headers["x-manners-ignored"] == "service_tier"
    assert answer.headers["x-manners-engine"] == "scripted"


@pytest.mark.parametrize(
    ("thinking", "on"),
    [({"type": "enabled", "budget_tokens": 2048}, True), ({"type": "disabled"}, False), (None, False)],
)
async def test_thinking_is_switched(
    home: House, client: AsyncAnthropic, thinking: dict[str, Any] | None, on: bool
) -> None:
    """By Anthropic's own switch; the model's default without it."""
    more: dict[str, Any] = {} if thinking is None else {"thinking": thinking}
    await client.messages.create(**{**ASKED, "max_tokens": 4096}, **more)
    sent = (await home.engine.request()).body
    assert sent["chat_template_kwargs"] == {"enable_thinking": on}


CALLS: dict[str, tuple[Step, ...]] = {
    "in the API's field": (Say(call("web_search", '{"q": "rain"}')), Say(finish("tool_calls"))),
    "as hermes text": (
        Say(text('I look.<tool_call>\n{"name": "web_search", "arguments": {"q": "rain"}}\n</tool_call>')),
        Say(finish()),
    ),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", CALLS)
async def test_a_tool_call_and_its_answer(
    home: House, client: AsyncAnthropic, name: str, stream: bool
) -> None:
    """However the engine writes a call, the client can use it, and its result makes the round."""
    home.engine.play(Head(), Say(role()), *CALLS[name], Say(usage(9)), Say(DONE))
    asked: dict[str, Any] = {**ASKED, "tools": TOOLS}
    if stream:
        async with client.messages.stream(**asked) as it:
            done = await it.get_final_message()
    else:
        done = await client.messages.create(**asked)
    assert done.stop_reason == "tool_use"
    made = done.content[-1]
    assert made.type == "tool_use" and made.id
    assert (made.name, made.input) == ("web_search", {"q": "rain"})
    home.engine.play(*reply("It will rain."))
    turns: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in done.content]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": made.id, "content": [{"type": "text", "text": "rain"}]},
            {"type": "text", "text": "Well?"},
        ]},
    ]  # fmt: skip
    answer = await client.messages.create(**{**asked, "messages": turns})
    assert answer.content[0].type == "text" and answer.content[0].text == "It will rain."
    _, assistant, result, user = (await home.engine.request(2)).body["messages"]
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] == made.id
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"q": "rain"}
    assert (result["role"], result["content"]) == ("tool", "rain")
    assert user == {"role": "user", "content": "Well?"}


async def test_two_calls_are_two_blocks(home: House, client: AsyncAnthropic) -> None:
    """Each with its own index, in a row."""
    both = (Say(call("web_search", '{"q": "a"}')), Say(call("web_search", '{"q": "b"}', 1)))
    home.engine.always(Head(), Say(text("Two.")), *both, Say(finish("tool_calls")), Say(DONE))
    whole = await client.messages.create(**ASKED, tools=TOOLS)
    assert [b.type for b in whole.content] == ["text", "tool_use", "tool_use"]
    assert is_in_order(events((await post(home, tools=TOOLS, stream=True))[1]))
    async with client.messages.stream(**ASKED, tools=TOOLS) as it:
        done = await it.get_final_message()
    assert [b.input for b in done.content if b.type == "tool_use"] == [{"q": "a"}, {"q": "b"}]


async def test_arguments_that_are_no_object_are_not_passed_off_as_none(
    home: House, client: AsyncAnthropic
) -> None:
    """A cut call is told as such, in the wrapping that Anthropic's documents name."""
    home.engine.play(Head(), Say(call("web_search", '{"q": "ra')), Say(finish("length")), Say(DONE))
    done = await client.messages.create(**ASKED, tools=TOOLS)
    assert done.stop_reason == "max_tokens"
    assert done.content[0].type == "tool_use"
    assert done.content[0].input == {"INVALID_JSON": '{"q": "ra'}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_sequence_is_told_where_the_engine_does_not_say_it(
    home: House, client: AsyncAnthropic, stream: bool
) -> None:
    """llama-server cuts the text, and says "stop": so the gateway looks itself, and ends the engine's reply."""
    timings = {"predicted_n": 5, "prompt_n": 4, "cache_n": 3}
    end = chunk({"content": "ND and more"}, timings=timings)
    home.engine.play(Head(), Say(text("One, E")), Say(text("two, E")), Say(end), Hang())
    asked: dict[str, Any] = {**ASKED, "stop_sequences": ["never", "END"]}
    if stream:
        async with client.messages.stream(**asked) as it:
            done = await it.get_final_message()
    else:
        done = await client.messages.create(**asked)
    assert [block.text for block in done.content if block.type == "text"] == ["One, Etwo, "]
    assert (done.stop_reason, done.stop_sequence) == ("stop_sequence", "END")
    usage = done.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (4, 3, 5)
    (seen,) = home.engine.requests
    assert "stop" not in seen.body and seen.body["timings_per_token"] is True
    async with asyncio.timeout(PATIENCE):
        await seen.gone.wait()


async def test_an_engine_that_says_it_is_sent_the_sequences(tmp_path: Path) -> None:
    async with house(tmp_path, dialect="vllm") as home:
        assert (await post(home, stop_sequences=["END"]))[0] == 200
        assert home.engine.requests[0].body["stop"] == ["END"]


async def test_sequences_too_long_to_be_looked_for_go_to_the_engine(home: House) -> None:
    assert (await post(home, stop_sequences=["x" * 65]))[0] == 200
    assert home.engine.requests[0].body["stop"] == ["x" * 65]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (chunk({}, "stop"), ("end_turn", None)),
        (chunk({}, "length"), ("max_tokens", None)),
        (chunk({}, "repetition"), ("max_tokens", None)),
        (chunk({}, "content_filter"), ("refusal", None)),
        (chunk({}, "stop").replace(b'"finish_reason"', b'"stop_reason": "END", "finish_reason"'),
         ("stop_sequence", "END")),
        (chunk({}, "stop").replace(b'"finish_reason"', b'"stop_reason": 7, "finish_reason"'),
         ("end_turn", None)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
async def test_why_it_stopped(
    home: House, client: AsyncAnthropic, last: bytes, expected: tuple[str, str | None], stream: bool
) -> None:
    """In Anthropic's words; the stop sequence where the engine names it."""
    home.engine.play(Head(), Say(text("Hi.")), Say(last), Say(DONE))
    if stream:
        async with client.messages.stream(**ASKED) as it:
            done = await it.get_final_message()
    else:
        done = await client.messages.create(**ASKED)
    assert (done.stop_reason, done.stop_sequence) == expected


@pytest.mark.parametrize("stream", [True, False])
async def test_a_thought_is_nowhere_in_the_reply(home: House, client: AsyncAnthropic, stream: bool) -> None:
    """Neither from the engine's field nor from tags."""
    home.engine.always(
        Head(),
        Say(thought("SECRET one")),
        Say(text("<think>SECRET two</think>Yes.")),
        Say(finish()),
        Say(DONE),
    )
    raw = (await post(home, stream=stream))[1]
    assert b"SECRET" not in raw and b"think" not in raw and b"Yes." in raw


@pytest.mark.parametrize("stream", [True, False])
async def test_a_thought_is_a_block_of_its_own_where_the_model_is_set_so(
    tmp_path_factory: pytest.TempPathFactory, stream: bool
) -> None:
    """reasoning = separate."""
    base = tmp_path_factory.mktemp("separate")
    async with house(base, reasoning="separate", thinking="on") as home:
        home.engine.play(Head(), Say(thought("Hm, ")), Say(thought("yes.")), Say(text("Yes.")), Say(finish()),
                         Say(DONE))  # fmt: skip
        async with AsyncAnthropic(base_url=home.url, api_key="any", max_retries=0) as client:
            if stream:
                async with client.messages.stream(**ASKED) as it:
                    done = await it.get_final_message()
            else:
                done = await client.messages.create(**ASKED)
    first, second = done.content
    assert first.type == "thinking" and first.thinking == "Hm, yes."
    assert second.type == "text" and second.text == "Yes."


async def test_every_split_of_the_bytes_gives_the_same_reply(home: House) -> None:
    """Byte by byte, the engine's stream means what it means."""
    said = (thought("SECRET"), text("Ünï <b> "), text('co<tool_call>{"name": "web_search", '),
            text('"arguments": {"q": "é"}}</tool_call>'), finish(), usage(5), DONE)  # fmt: skip
    whole = b"".join(said)
    home.engine.play(Head(), Say(whole))
    expected = joined(events((await post(home, stream=True, tools=TOOLS))[1]))
    home.engine.play(Head(), *[Say(whole[i : i + 1]) for i in range(len(whole))])
    row = events((await post(home, stream=True, tools=TOOLS))[1])
    assert is_in_order(row)
    assert joined(row) == expected == ("Ünï <b> co", '{"q": "é"}', "tool_use", 5)


def joined(row: list[dict[str, Any]]) -> tuple[str, str, str, int]:
    """What a stream says in all."""
    deltas = [e["delta"] for e in row if e["type"] == "content_block_delta"]
    texts, inputs = ("".join(d.get(name, "") for d in deltas) for name in ("text", "partial_json"))
    return texts, inputs, row[-2]["delta"]["stop_reason"], row[-2]["usage"]["output_tokens"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens"),
    "no messages": ({"messages": []}, "messages"),
    "an image": (
        {"messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}]},
        "source.type: Input should be 'base64'",
    ),
    "a document in a result": (
        {"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "document"}]}]}]},
        "'document' is not served",
    ),
    "a server's tool": ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
    "a choice without tools": ({"tool_choice": {"type": "any"}}, "tool_choice needs tools"),
    "too many messages": ({"messages": HELLO * 9}, "at most 5 messages"),
    "a choice that nobody declared": (
        {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "dance"}}, "names 'dance'"),
    "a choice of no tool": ({"tools": TOOLS, "tool_choice": {"type": "tool"}}, "tool_choice"),
    "servers of tools": (
        {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}, "mcp_servers is not served"),
    "a container": ({"container": "c_1"}, "container is not served"),
    "an edited context": (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management is not"),
    "a form that there is not": ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_served_is_refused(home: House, name: str) -> None:
    """400 in Anthropic's envelope, and it says what."""
    fields, said = REFUSED[name]
    code, raw = await post(home, **fields)
    body = json.loads(raw)
    assert code == 400 and body.keys() == {"type", "error"} and body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert said in body["error"]["message"]


@pytest.mark.parametrize(
    ("steps", "fields", "kind", "word"),
    [
        ((), {"model": "nobody"}, anthropic.NotFoundError, "not_found_error"),
        ((), {"messages": [{"role": "user", "content": "x" * 5000}]}, anthropic.ContentTooLargeError,
         "request_too_large"),
        (status(400, {"error": {"message": "too long"}}), {}, anthropic.BadRequestError,
         "invalid_request_error"),
        (status(500), {}, anthropic.InternalServerError, "api_error"),
        (status(503), {}, anthropic.ServiceUnavailableError, "overloaded_error"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_is_raised_by_the_call_itself(
    home: House, client: AsyncAnthropic, steps: tuple[Step, ...], fields: dict[str, Any],
    kind: type[anthropic.APIStatusError], word: str, stream: bool,
) -> None:  # fmt: skip
    """With the package's own class, streaming or not."""
    home.engine.play(*steps)
    with pytest.raises(kind) as caught:
        await client.messages.create(**{**ASKED, **fields}, stream=stream)
    assert caught.value.type == word
    assert caught.value.message and caught.value.error_code


async def test_a_stream_that_breaks_off_raises(home: House, client: AsyncAnthropic) -> None:
    """What came was read; then the client raises, and does not take the reply for a whole one."""
    home.engine.play(Head(), Say(text("One")), Wait(0.02), Say(text(" two")), Wait(0.02), Reset())
    said = []
    before = len(home.log.of("request"))

    async def listen() -> None:
        async with client.messages.stream(**ASKED) as stream:
            async for piece in stream.text_stream:
                said.append(piece)

    with pytest.raises(anthropic.APIStatusError) as caught:
        await listen()
    assert "".join(said) == "One two"
    assert caught.value.error_code == "upstream_truncated"
    assert (await home.log.until(before + 1, "request"))["outcome"] == "upstream_error"


async def test_silence_in_mid_stream_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A fault of the clocks, too, is an `error` event, and no message_stop."""
    base = tmp_path_factory.mktemp("silent")
    timeouts = {"connect": 1.0, "first_token": 1.0, "idle": 0.2, "total": 5.0}
    async with house(base, timeouts=timeouts) as home:
        home.engine.play(Head(), Say(text("One")), Hang())
        row = events((await post(home, stream=True))[1])
    assert row[-1]["type"] == "error" and row[-1]["error"]["details"]["error_code"] == "idle_timeout"
    assert not [e for e in row if e["type"] in ("message_delta", "message_stop")]


async def test_a_key_may_come_in_either_header(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`x-api-key` as well as a bearer token; a wrong one is Anthropic's 401."""
    async with house(tmp_path_factory.mktemp("keys"), keys=("key-1",)) as home:
        either: list[dict[str, Any]] = [{"api_key": "key-1"}, {"auth_token": "key-1"}]
        for arguments in either:
            async with AsyncAnthropic(base_url=home.url, max_retries=0, **arguments) as right:
                assert (await right.messages.create(**ASKED)).stop_reason == "end_turn"
        async with AsyncAnthropic(base_url=home.url, max_retries=0, api_key="key-2") as wrong:
            with pytest.raises(anthropic.AuthenticationError) as caught:
                await wrong.messages.create(**ASKED)
        assert caught.value.type == "authentication_error"
        for headers in ({}, {"x-api-key": ""}, {"x-api-key": "key-"}):
            async with home.client.post(f"{home.url}/v1/messages", json=ASKED, headers=headers) as response:
                assert response.status == 401
        async with home.client.get(
            f"{home.admin}/admin/status", headers={"x-api-key": "operators-token"}
        ) as no:
            assert no.status == 401
