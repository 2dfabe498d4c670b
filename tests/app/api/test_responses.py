"""The `openai` package against the gateway: the Responses API over the one core."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.app.house import House, house
from tests.script import (
    DONE,
    Hang,
    Head,
    Reset,
    Say,
    Step,
    Wait,
    call,
    finish,
    reply,
    role,
    status,
    text,
    thought,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, Any] = {"model": "annie", "input": "Hello!"}
TOOLS: list[Any] = [
    {"type": "function", "name": "web_search", "parameters": {"type": "object"}, "strict": False}
]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


async def post(home: House, **more: Any) -> tuple[int, bytes]:
    """One raw request."""
    async with home.client.post(f"{home.url}/v1/responses", json={**ASKED, **more}) as response:
        return response.status, await response.read()


def events(raw: bytes) -> list[dict[str, Any]]:
    """The events of a stream: each named as its type, numbered, and of a type that the package knows."""
    *frames, rest = raw.split(b"\n\n")
    assert rest == b""
    found = []
    for number, frame in enumerate(frames):
        name, data = frame.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        assert event["sequence_number"] == number
        EVENT.validate_python(event)
        found.append(event)
    return found


def check_order(row: list[dict[str, Any]]) -> dict[str, Any]:
    """Items open and close in a row, and what was told in pieces is what stands at the end."""
    assert [e["type"] for e in row[:2]] == ["response.created", "response.in_progress"]
    items: list[Any] = []
    pieces: list[str] = []
    is_open = False
    for e in row[2:-1]:
        kind = e["type"].removeprefix("response.")
        assert e["output_index"] == len(items)
        assert is_open == (kind != "output_item.added")
        if kind == "output_item.added":
            is_open, pieces, opened = True, [], e["item"]
            assert opened["status"] == "in_progress"
        elif kind == "output_item.done":
            assert e["item"]["id"] == opened["id"]
            items.append(e["item"])
            is_open = False
        else:
            assert e["item_id"] == opened["id"]
            if kind.endswith(".delta"):
                pieces.append(e["delta"])
            elif kind in ("output_text.done", "reasoning_text.done"):
                assert e["text"] == "".join(pieces)
            elif kind == "function_call_arguments.done":
                assert e["arguments"] == "".join(pieces)
    assert not is_open
    last: dict[str, Any] = row[-1]["response"]
    assert last["output"] == items
    return last


def same(response: dict[str, Any]) -> dict[str, Any]:
    """A response without what differs from request to request."""
    made = json.loads(json.dumps(response))
    for item in [made, *made["output"]]:
        item.pop("id")
    return {k: v for k, v in made.items() if k != "created_at"}


async def test_a_whole_response(home: House, client: AsyncOpenAI) -> None:
    """Text, status, usage and model in their places."""
    done = await client.responses.create(**ASKED)
    Response.model_validate(done.model_dump())
    assert (done.output_text, done.status, done.model) == ("Hello there.", "completed", "annie")
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.total_tokens) == (7, 2, 9)
    assert done.id.startswith("resp_") and done.store is False


async def test_a_stream(home: House, client: AsyncOpenAI) -> None:
    """The package puts it together; event for event it is the whole response."""
    async with client.responses.stream(**ASKED) as stream:
        said = "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])
        done = await stream.get_final_response()
    assert said == done.output_text == "Hello there."
    row = events((await post(home, stream=True))[1])
    last = check_order(row)
    assert [e["type"].removeprefix("response.") for e in row] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert same(last) == same(json.loads((await post(home))[1]))


async def test_what_the_engine_is_asked(home: House, client: AsyncOpenAI) -> None:
    """Every field in the engine's words, repeated in the response; what goes nowhere is named."""
    answer = await client.responses.with_raw_response.create(
        **ASKED,
        instructions="Be brief.",
        max_output_tokens=50,
        temperature=0.5,
        top_p=0.9,
        tools=TOOLS,
        tool_choice={
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "web_search"}],
        },
        parallel_tool_calls=False,
        reasoning={"effort": "none"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        metadata={"a": "b"},
        user="u",
        store=False,
        service_tier="auto",
    )
    sent = (await home.engine.request()).body
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]  # fmt: skip
    wanted = {
        "max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "user": "u", "parallel_tool_calls": False,
        "tool_choice": "auto",
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "n", "schema": {"type": "object"}}},
    }  # fmt: skip
    assert {name: sent.get(name) for name in wanted} == wanted
    assert sent["tools"][0]["function"] == {
        "name": "web_search", "parameters": {"type": "object"}, "strict": False}  # fmt: skip
    assert answer.headers["x-manners-ignored"] == "service_tier"
    done = answer.parse()
    assert (done.instructions, done.max_output_tokens, done.metadata) == ("Be brief.", 50, {"a": "b"})
    assert done.tools[0].type == "function" and done.tools[0].name == "web_search"
    assert done.tool_choice.to_dict()["mode"] == "auto"


@pytest.mark.parametrize(("effort", "on"), [("none", False), ("high", True), (None, False)])
async def test_thinking_is_switched(home: House, client: AsyncOpenAI, effort: str | None, on: bool) -> None:
    more: dict[str, Any] = {} if effort is None else {"reasoning": {"effort": effort}}
    await client.responses.create(**ASKED, **more)
    assert (await home.engine.request()).body["chat_template_kwargs"] == {"enable_thinking": on}


CALLS: dict[str, tuple[Step, ...]] = {
    "in the API's field": (Say(call("web_search", '{"q": "rain"}')), Say(finish("tool_calls"))),
    "as hermes text": (
        Say(text('I look.<tool_call>\n{"name": "web_search", "arguments": {"q": "rain"}}\n</tool_call>')),
        Say(finish()),
    ),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", CALLS)
async def test_a_tool_call_and_its_answer(home: House, client: AsyncOpenAI, name: str, stream: bool) -> None:
    """However the engine writes a call, the client can use it, and its result makes the round."""
    home.engine.play(Head(), Say(role()), *CALLS[name], Say(usage(9)), Say(DONE))
    asked: dict[str, Any] = {**ASKED, "tools": TOOLS}
    if stream:
        async with client.responses.stream(**asked) as it:
            done: Response = await it.get_final_response()
    else:
        done = await client.responses.create(**asked)
    made = done.output[-1]
    assert made.type == "function_call" and done.status == "completed"
    assert (made.name, json.loads(made.arguments)) == ("web_search", {"q": "rain"})
    home.engine.play(*reply("It will rain."))
    turns: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello!"}]},
        *[item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in done.output],
        {"type": "function_call_output", "call_id": made.call_id, "output": "rain"},
    ]
    answer = await client.responses.create(model="annie", input=turns, tools=TOOLS)
    assert answer.output_text == "It will rain."
    user, assistant, result = (await home.engine.request(2)).body["messages"]
    assert user["role"] == "user"
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] == made.call_id
    assert assistant["content"] == ("" if name == "in the API's field" else "I look.")
    assert (result["role"], result["content"]) == ("tool", "rain")


async def test_two_calls_are_two_items(home: House, client: AsyncOpenAI) -> None:
    """And one turn, when they are handed back."""
    both = (Say(call("web_search", '{"q": "a"}')), Say(call("web_search", '{"q": "b"}', 1)))
    home.engine.play(Head(), Say(text("Two.")), *both, Say(finish("tool_calls")), Say(DONE))
    last = check_order(events((await post(home, tools=TOOLS, stream=True))[1]))
    assert [i["type"] for i in last["output"]] == ["message", "function_call", "function_call"]
    await client.responses.create(model="annie", input=last["output"])
    (turn,) = (await home.engine.request(2)).body["messages"]
    assert turn["content"] == "Two." and len(turn["tool_calls"]) == 2


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", ("completed", None)), ("length", ("incomplete", "max_output_tokens")), ("repetition", ("incomplete", "max_output_tokens")),
     ("content_filter", ("incomplete", "content_filter"))],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
async def test_how_it_ended(home: House, reason: str, expected: tuple[str, str | None], stream: bool) -> None:
    home.engine.play(Head(), Say(text("Hi.")), Say(finish(reason)), Say(usage(1)), Say(DONE))
    raw = (await post(home, stream=stream))[1]
    if stream:
        row = events(raw)
        last = check_order(row)
        assert row[-1]["type"] == f"response.{expected[0]}"
    else:
        last = json.loads(raw)
        Response.model_validate(last)
    assert (last["status"], (last["incomplete_details"] or {}).get("reason")) == expected
    assert last["output"][0]["status"] == expected[0] and last["usage"]["output_tokens"] == 1


async def test_a_reply_without_a_word(home: House) -> None:
    """Still an item, so that nobody's `output[0]` fails."""
    home.engine.always(Head(), Say(role()), Say(finish()), Say(DONE))
    last = check_order(events((await post(home, stream=True))[1]))
    assert last["output"][0]["content"][0]["text"] == ""
    assert same(json.loads((await post(home))[1])) == same(last)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_thought_is_nowhere_in_the_reply(home: House, stream: bool) -> None:
    """Neither from the engine's field nor from tags."""
    home.engine.always(
        Head(), Say(thought("SECRET one")), Say(text("<think>SECRET two</think>Yes.")), Say(finish()),
        Say(DONE),
    )  # fmt: skip
    raw = (await post(home, stream=stream))[1]
    assert b"SECRET" not in raw and b"<think" not in raw and b"Yes." in raw
    assert b'"type":"reasoning"' not in raw


@pytest.mark.parametrize("stream", [True, False])
async def test_a_thought_is_an_item_of_its_own_where_the_model_is_set_so(
    tmp_path_factory: pytest.TempPathFactory, stream: bool
) -> None:
    """reasoning = separate; and it may be handed back."""
    async with house(tmp_path_factory.mktemp("s"), reasoning="separate", thinking="on") as home:
        said = (Say(thought("Hm, ")), Say(thought("yes.")), Say(text("Yes.")), Say(finish()), Say(DONE))
        home.engine.play(Head(), *said)
        raw = (await post(home, stream=stream))[1]
        last = check_order(events(raw)) if stream else json.loads(raw)
        reasoning, message = Response.model_validate(last).output
        assert reasoning.type == "reasoning" and reasoning.content is not None
        assert reasoning.content[0].text == "Hm, yes." and message.type == "message"
        await post(home, input=[*last["output"], {"role": "user", "content": "Sure?"}])
        turn = (await home.engine.request(2)).body["messages"][0]
        assert (turn["content"], turn["reasoning_content"]) == ("Yes.", "Hm, yes.")


async def test_every_split_of_the_bytes_gives_the_same_reply(home: House) -> None:
    """Byte by byte, the engine's stream means what it means."""
    said = (thought("SECRET"), text("Ünï <b> "), text('co<tool_call>{"name": "web_search", '),
            text('"arguments": {"q": "é"}}</tool_call>'), finish(), usage(5), DONE)  # fmt: skip
    whole = b"".join(said)
    home.engine.play(Head(), Say(whole))
    expected = check_order(events((await post(home, stream=True, tools=TOOLS))[1]))
    home.engine.play(Head(), *[Say(whole[i : i + 1]) for i in range(len(whole))])
    row = check_order(events((await post(home, stream=True, tools=TOOLS))[1]))
    message, made = row["output"]
    assert (message["content"][0]["text"], made["arguments"]) == ("Ünï <b> co", '{"q": "é"}')
    for response in (row, expected):
        response["output"][1].pop("call_id")
    assert same(row) == same(expected)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "store": ({"store": True}, "store is not served: this gateway keeps nothing"),
    "previous": ({"previous_response_id": "resp_1"}, "previous_response_id is not served"),
    "conversation": ({"conversation": {"id": "c"}}, "conversation is not served"),
    "background": ({"background": True}, "background is not served"),
    "no input": ({"input": None}, "input"),
    "an image": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]},
        "no address is fetched",
    ),
    "a reference": ({"input": [{"type": "item_reference", "id": "x"}]}, "'item_reference' is not served"),
    "a server's tool": ({"tools": [{"type": "web_search"}]}, "tools.0"),
    "a choice without tools": ({"tool_choice": "required"}, "tool_choice needs tools"),
    "truncation": ({"truncation": "auto"}, "truncation"),
    "probabilities": ({"top_logprobs": 2}, "top_logprobs is not served"),
    "modalities": ({"extra_body": {"modalities": ["audio"]}}, "modalities is not served"),
    "a choice that nobody declared": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "name": "dance"}},
        "names 'dance'",
    ),
    "a choice of a server's tool": ({"tools": TOOLS, "tool_choice": {"type": "file_search"}}, "tool_choice"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_served_is_refused(home: House, client: AsyncOpenAI, name: str) -> None:
    """400, and it says what."""
    fields, said = REFUSED[name]
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(**{**ASKED, **fields})
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("steps", "fields", "kind"),
    [
        ((), {"model": "nobody"}, openai.NotFoundError),
        (status(400, {"error": {"message": "too long"}}), {}, openai.BadRequestError),
        (status(500), {}, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_is_raised_by_the_call_itself(
    home: House, client: AsyncOpenAI, steps: tuple[Step, ...], fields: dict[str, Any],
    kind: type[openai.APIStatusError], stream: bool,
) -> None:  # fmt: skip
    home.engine.play(*steps)
    with pytest.raises(kind) as caught:
        await client.responses.create(**{**ASKED, **fields}, stream=stream)
    assert caught.value.code


async def test_a_stream_that_breaks_off_has_failed(home: House, client: AsyncOpenAI) -> None:
    """Its last event says so; it is never `completed`."""
    home.engine.play(Head(), Say(text("One")), Wait(0.02), Say(text(" two")), Wait(0.02), Reset())
    row = [e async for e in await client.responses.create(**ASKED, stream=True)]
    assert "".join(e.delta for e in row if e.type == "response.output_text.delta") == "One two"
    last = row[-1]
    assert last.type == "response.failed" and last.response.status == "failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.error.type) == ("server_error", "upstream_truncated")


async def test_silence_in_mid_stream_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A fault of the clocks, too, ends in response.failed, numbered on."""
    timeouts = {"connect": 1.0, "first_token": 1.0, "idle": 0.2, "total": 5.0}
    async with house(tmp_path_factory.mktemp("silent"), timeouts=timeouts) as home:
        home.engine.play(Head(), Say(text("One")), Hang())
        row = events((await post(home, stream=True))[1])
    assert row[-1]["response"]["error"]["type"] == "idle_timeout"
    assert not [e for e in row if e["type"] in ("response.completed", "response.incomplete")]
