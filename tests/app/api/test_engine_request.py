"""What engines are sent: everything they need, nothing that they choke on, and no secrets."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, get_args

import pytest
import pytest_asyncio

from app.api.chat_request import without_thoughts
from app.api.reading import UNSERVED
from gates.contracts.dialect import Dialect
from tests.app.house import HELLO, Answer, GatewayFixture, house

pytestmark = pytest.mark.asyncio(loop_scope="module")

DIALECTS = get_args(Dialect)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def houses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, GatewayFixture]]:
    """One gateway for each dialect, and one whose model thinks within a budget."""
    async with AsyncExitStack() as stack:
        found = {}
        for dialect in DIALECTS:
            base = tmp_path_factory.mktemp(dialect)
            found[dialect] = await stack.enter_async_context(house(base, dialect=dialect))
        base = tmp_path_factory.mktemp("budget")
        found["budget"] = await stack.enter_async_context(house(base, dialect="vllm", thinking=256))
        yield found


async def sent(home: GatewayFixture, **fields: Any) -> dict[str, Any]:
    """The body that the engine got for a request with these fields."""
    home.engine.forget()
    answer = await home.ask(**fields)
    assert answer.status == 200, answer.raw
    return (await home.engine.request()).body


OFF: list[dict[str, Any]] = [
    {},
    {"chat_template_kwargs": {}},
    *({"chat_template_kwargs": {"enable_thinking": word}} for word in (False, None)),
    {"reasoning_effort": "none"},
    {"reasoning_effort": None},
    {"thinking": {"type": "disabled"}},
    {"thinking": {"type": "disabled", "budget_tokens": 9}},
    {"thinking": {"type": "enabled", "budget_tokens": 0}},
    {"thinking": {"type": "disabled"}, "reasoning_effort": "high"},
    {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "high"},
]  # fmt: skip
ON: list[dict[str, Any]] = [
    {"chat_template_kwargs": {"enable_thinking": True}},
    {"reasoning_effort": "low"},
    {"reasoning_effort": "high"},
    {"thinking": {"type": "enabled"}},
]
BUDGET: list[dict[str, Any]] = [{"thinking": {"type": "enabled", "budget_tokens": 64}}]


def thinking_fields(body: dict[str, Any]) -> dict[str, Any]:
    """What the engine was told about thinking."""
    names = ("chat_template_kwargs", "thinking_token_budget", "reasoning_budget_tokens", "reasoning_format",
             "reasoning_effort", "thinking", "enable_thinking", "include_reasoning")  # fmt: skip
    return {name: body[name] for name in names if name in body}


NO, YES = ({"chat_template_kwargs": {"enable_thinking": on}} for on in (False, True))
DEEPSEEK = {"reasoning_format": "deepseek"}
SWITCHES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # off, on, on with a budget of 64
    "vllm": (NO, YES, YES | {"thinking_token_budget": 64}),
    "llama-server": (NO | DEEPSEEK, YES | DEEPSEEK, YES | DEEPSEEK | {"reasoning_budget_tokens": 64}),
    "sglang": (NO, YES, YES),
    "openai": ({}, {}, {}),
}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_thinking_is_switched_in_the_engines_own_words(
    houses: dict[str, GatewayFixture], dialect: str
) -> None:
    """Whatever words the caller used, and always with a real boolean."""
    for asked, told in zip((OFF, ON, BUDGET), SWITCHES[dialect], strict=True):
        for fields in asked:
            body = await sent(houses[dialect], **fields)
            assert thinking_fields(body) == told, fields
            if told:
                assert type(body["chat_template_kwargs"]["enable_thinking"]) is bool


async def test_a_configured_budget_holds_unless_the_caller_names_another(
    houses: dict[str, GatewayFixture],
) -> None:
    """On is on within the model's budget; off is off."""
    home = houses["budget"]
    expected = [({}, 256), (ON[0], 256), (ON[1], 256), (ON[3], 256), (BUDGET[0], 64), (OFF[2], None)]
    for fields, budget in expected:
        assert (await sent(home, **fields)).get("thinking_token_budget") == budget, fields


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False, None])
async def test_every_engine_is_asked_to_stream_and_to_count(
    houses: dict[str, GatewayFixture], dialect: str, stream: bool | None
) -> None:
    """A whole reply is streamed, too; the model's name is the engine's own."""
    body = await sent(houses[dialect], stream=stream)
    assert (body["stream"], body["stream_options"], body["model"]) == (
        True,
        {"include_usage": True},
        "scripted",
    )
    assert body["messages"] == HELLO


OWN_FIELDS = {
    "vllm": {"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "cache_salt", "priority"},
    "llama-server": {"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "repeat_penalty", "cache_prompt"},
    "sglang": {"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "cache_salt", "priority"},
    "openai": set(),
}  # fmt: skip
DANGEROUS = {
    "api_base", "base_url", "api_key", "api_version", "custom_llm_provider", "model_list", "fallbacks", "mock_response",
    "metadata_headers", "extra_headers", "extra_body", "grammar", "id_slot", "lora", "return_token_ids",
    "continue_final_message", "add_generation_prompt", "chat_template", "documents", "vllm_xargs", "request_id",
    "kv_transfer_params", "include_reasoning", "reasoning_format", "thinking_token_budget", "enable_thinking",
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_field_that_goes_nowhere_is_named(houses: dict[str, GatewayFixture], dialect: str) -> None:
    """Nothing is dropped in silence, and nothing that steers a server or a proxy is passed on."""
    home = houses[dialect]
    home.engine.forget()
    asked = sorted((DANGEROUS - UNSERVED) | set().union(*OWN_FIELDS.values()))
    fields: dict[str, Any] = {**dict.fromkeys(asked, 1), "metadata": {"turn": "7"}, "store": False}
    answer = await home.ask(**fields)
    body = (await home.engine.request()).body
    gone = [name for name in asked if name not in OWN_FIELDS[dialect]]
    ours = {"reasoning_format"} if dialect == "llama-server" else set()
    assert not (set(gone) - ours) & body.keys()
    assert body.get("reasoning_format") in (None, "deepseek")
    assert OWN_FIELDS[dialect] <= body.keys()
    named = answer.headers["x-manners-ignored"].split(",")
    assert named == ",".join(sorted([*gone, "metadata"]))[:512].split(",")


@pytest.mark.parametrize("stream", [True, False])
async def test_the_header_of_ignored_fields_is_safe_and_only_there_when_needed(
    houses: dict[str, GatewayFixture], stream: bool
) -> None:
    """Names come from the caller: none may break a header or fill it. A null is no field."""
    home = houses["openai"]
    home.engine.forget()
    hostile: dict[str, Any] = {
        "x\r\nset-cookie: a": 1,
        "ünï": 1,
        "a b": 1,
        "": 1,
        "top_k": 1,
        "x" * 99: 1,
        "foo-bar.baz": 1,
    }
    answer = await home.ask(stream=stream, **hostile)
    assert answer.headers["x-manners-ignored"] == "foo-bar.baz,top_k"
    assert "set-cookie" not in answer.headers
    answer = await home.ask(stream=stream, top_k=None, api_base=None)
    assert "x-manners-ignored" not in answer.headers


async def test_an_answer_that_the_caller_began_is_gone_on_with_and_not_thought_about(
    houses: dict[str, GatewayFixture],
) -> None:
    """llama-server does so by itself; vLLM must be told, and takes it for a thought if it thinks."""
    begun = [*HELLO, {"role": "assistant", "content": "Hello, my"}]
    for dialect, fields in (
        ("vllm", (True, False)),
        ("llama-server", (None, None)),
        ("sglang", (True, None)),
        ("openai", (None, None)),
    ):
        body = await sent(houses[dialect], messages=begun, thinking={"type": "enabled", "budget_tokens": 9})
        assert (body.get("continue_final_message"), body.get("add_generation_prompt")) == fields
        assert body.get("chat_template_kwargs", {"enable_thinking": False}) == {"enable_thinking": False}
        assert "continue_final_message" not in await sent(houses[dialect], messages=HELLO)


async def test_the_conversation_is_put_in_words_that_templates_know(
    houses: dict[str, GatewayFixture],
) -> None:
    """developer is system; null is ""; fields of nobody are left out; calls and their results stay."""
    call = {"id": "c1", "type": "function", "function": {"name": "web_search", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be kind."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi", "cache_control": 1}],
            "name": "Ravi",
            "mood": 1,
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "audio": None},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    for dialect in DIALECTS:
        body = await sent(houses[dialect], messages=messages)
        assert body["messages"] == [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": messages[1]["content"], "name": "Ravi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ]


HISTORY = {
    "Plain.": "Plain.",
    "a < b": "a < b",
    "<think>\nHm.\n</think>\n\nYes.": "Yes.",
    "Hm.</think>Yes.": "Yes.",
    "Yes.<think>never closed": "Yes.",
    "<think>only a thought</think>": "",
}


async def test_old_thoughts_are_not_sent_back(houses: dict[str, GatewayFixture]) -> None:
    """Tags in a history breed more of them: an assistant's old turn is what was visible of it."""
    for old, visible in HISTORY.items():
        half = len(old) // 2
        parts = [{"type": "text", "text": old[:half]}, {"type": "text", "text": old[half:]}]
        for content in (old, parts):
            turn = {"role": "assistant", "content": content}
            body = await sent(houses["vllm"], messages=[*HELLO, turn, *HELLO])
            assert body["messages"][1] == {"role": "assistant", "content": visible}
        assert without_thoughts(old) == visible
    asked = [{"role": "user", "content": "What does <think>x</think> mean?"}]
    assert (await sent(houses["vllm"], messages=asked))["messages"] == asked


async def test_a_trace_goes_through_and_a_key_does_not(houses: dict[str, GatewayFixture]) -> None:
    """Of the caller's headers the engine sees the trace and the request's id, and nothing else."""
    home = houses["vllm"]
    home.engine.forget()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": trace, "tracestate": "a=1", "x-request-id": "turn-9", "authorization": "Bearer secret",
               "cookie": "secret", "x-forwarded-for": "10.0.0.1", "x-api-key": "secret"}  # fmt: skip
    answer: Answer = await home.ask(headers=headers)
    assert answer.headers["x-request-id"] == "turn-9"
    got = (await home.engine.request()).headers
    assert (got["traceparent"], got["tracestate"], got["x-request-id"]) == (trace, "a=1", "turn-9")
    assert got.keys() == {
        "host",
        "content-length",
        "content-type",
        "accept",
        "accept-encoding",
        "traceparent",
        "tracestate",
        "x-request-id",
    }
