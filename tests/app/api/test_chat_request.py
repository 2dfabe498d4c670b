"""What a caller may not ask: each refusal has its status, code and parameter, and no engine hears of it."""

import asyncio
import re
from typing import Any

import pytest

from tests.app.house import HELLO, TOOLS, Answer, GatewayFixture
from tests.script import Until, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = {"role": "user", "content": "Hi"}


def body(**fields: Any) -> dict[str, Any]:
    """A good request but for these fields."""
    return {"model": "annie", "messages": HELLO, **fields}


def turns(*messages: Any) -> dict[str, Any]:
    """A request with these messages."""
    return {"model": "annie", "messages": list(messages)}


REFUSED: list[tuple[Any, int, str, str | None]] = [
    # body, status, code, param
    (b"", 400, "invalid_json", None),
    (b'{"model": "\xff"}', 400, "invalid_utf8", None),
    (body(**{f"field_{number}": 1 for number in range(255)}), 400, "too_many_fields", None),
    ({"model": "annie"}, 400, "missing_field", "messages"),
    (body(model="nobody"), 404, "model_not_found", None),
    (body(messages=[]), 400, "invalid_value", "messages"),
    (body(messages=[*HELLO] * 6), 400, "too_many_messages", "messages"),
    (turns({"role": "wizard", "content": "Hi"}), 400, "invalid_value", "messages.0.role"),
    (
        turns({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}),
        400,
        "unsupported_content",
        "messages.0.content.0.image_url.url",
    ),
    (turns({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}), 400, "missing_field", "messages.0.content.0.input_audio.data"),
    (turns({"role": "user", "content": [{"type": "file", "file": {}}]}), 400, "unsupported_content", "messages.0.content.0.type"),
    (turns({"role": "user", "content": [{"text": "a"}]}), 400, "missing_field", "messages.0.content.0.type"),
    (body(stream="yes"), 400, "invalid_value", "stream"),
    (body(top_logprobs=3), 400, "invalid_value", "top_logprobs"),
    (body(functions=[{"name": "f"}]), 400, "unsupported_parameter", "functions"),
    (body(tools=[{"type": "code", "function": {"name": "f"}}]), 400, "invalid_value", "tools.0.type"),
    (body(tools=[{"type": "function", "function": {"name": "no spaces"}}]), 400, "invalid_value", "tools.0.function.name"),
    (body(tools=[{"type": "function", "function": {"name": "f"}}] * 129), 413, "body_too_large", None),
    (body(tool_choice="required"), 400, "invalid_value", "tool_choice"),
    (body(tools=TOOLS, tool_choice={"type": "allowed_tools"}), 400, "invalid_value", "tool_choice.type"),
    (body(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "dance"}}), 400, "invalid_value", "tool_choice"),
    (body(max_tokens=0), 400, "invalid_value", "max_tokens"),
    (body(thinking={"type": "enabled", "budget_tokens": -1}), 400, "invalid_value", "thinking.budget_tokens"),
    (body(user="x" * 5000), 413, "body_too_large", None),
]  # fmt: skip


def is_refusal(answer: Answer, status: int, code: str, param: str | None) -> None:
    """OpenAI's envelope, the right status, and the headers that every reply carries."""
    error = answer.error
    assert (answer.status, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"
    assert len(answer.raw) < 1000
    assert answer.headers["x-request-id"]
    assert answer.headers["x-manners-engine"] == "none"


@pytest.mark.parametrize(("asked", "status", "code", "param"), REFUSED)
async def test_a_wrong_request_is_refused_and_counted(
    home: GatewayFixture, asked: Any, status: int, code: str, param: str | None
) -> None:
    """The caller learns which field; the label of the model is never the caller's text."""
    before = await home.metrics()
    is_refusal(await home.ask(asked), status, code, param)
    booked = await home.booked()
    assert (booked["outcome"], booked["code"], booked["model"]) == ("client_error", code, "_unknown")
    after = await home.metrics()
    assert home.engine.requests == []
    labels = {"model": "_unknown", "engine": "none", "outcome": "client_error"}
    assert after("manners_requests_total", **labels) - before("manners_requests_total", **labels) == 1


ACCEPTED: list[dict[str, Any]] = [
    body(n=1, stream=None, tools=None, temperature=0, top_p=1, max_tokens=None, stop=None, user=None),
    body(functions=None, function_call=None, top_logprobs=None, logprobs=None, stream_options=None),
    body(logprobs=False, metadata={}, store=False, service_tier="auto"),
    body(tools=[], tool_choice="auto"),
    body(modalities=["text"], audio=None),
    body(tool_choice="none"),
    turns({"role": "user", "content": [{"type": "text", "text": "Hi"}]}),
    turns({"role": "developer", "content": "Be kind."}, USER),
    turns(USER, {"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "4"}),
    turns({"role": "user", "content": ""}),
]


@pytest.mark.parametrize("asked", ACCEPTED)
async def test_what_clients_send_for_nothing_is_taken(home: GatewayFixture, asked: dict[str, Any]) -> None:
    """Null is the same as absent, and an empty list of tools is no tools."""
    answer = await home.ask(asked)
    assert (answer.status, answer.text) == (200, "Hello there.")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/v1/nowhere", 404, "not_found"),
        ("GET", "/v1/models/nobody", 404, "model_not_found"),
        ("GET", "/metrics", 404, "not_found"),
        ("GET", "/admin/status", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
    ],
)
async def test_a_wrong_address_gets_an_envelope(
    home: GatewayFixture, method: str, path: str, status: int, code: str
) -> None:
    """Whatever the path: an error is always the same object; the operators' paths are not here."""
    async with home.client.request(method, home.url + path) as response:
        answer = Answer(
            response.status, {k.lower(): v for k, v in response.headers.items()}, await response.read()
        )
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.headers["x-request-id"]
    if status == 405:
        assert answer.headers["allow"] == "POST"


async def test_a_request_keeps_its_own_id(home: GatewayFixture) -> None:
    """A well-formed x-request-id comes back and goes on; anything else is replaced."""
    answer = await home.ask(headers={"x-request-id": "turn-7.of:annie_1"})
    assert answer.headers["x-request-id"] == "turn-7.of:annie_1"
    assert (await home.engine.request()).headers["x-request-id"] == "turn-7.of:annie_1"
    answer = await home.ask(headers={"x-request-id": "not well formed"})
    assert len(answer.headers["x-request-id"]) == 32


async def test_two_requests_with_one_id_have_two_at_the_engine(home: GatewayFixture) -> None:
    """vLLM refuses an id that is open: who knew another's would have kept it from her."""
    go_on, own = asyncio.Event(), {"x-request-id": "turn-8"}
    home.engine.play(Until(go_on), *reply())
    both = [asyncio.create_task(home.ask(headers=own, n=number)) for number in (1, 2)]
    sent = [(await home.engine.request(count)).headers["x-request-id"] for count in (1, 2, 3)]
    go_on.set()
    assert [(await one).headers["x-request-id"] for one in both] == ["turn-8", "turn-8"]
    assert sent[0] == "turn-8" and len(set(sent)) == 3
    assert all(re.fullmatch(r"turn-8~[0-9a-f]{16}(~1)?", one) for one in sent[1:])
    await home.ask(headers=own)
    assert (await home.engine.request(4)).headers["x-request-id"] == "turn-8"


async def test_models_are_listed_as_openai_lists_them(home: GatewayFixture) -> None:
    """Public names only; engines are nobody's business."""
    listed = (await home.get(home.url + "/v1/models")).json
    assert [m["id"] for m in listed["data"]] == ["annie"]
    one = (await home.get(home.url + "/v1/models/annie")).json
    assert one == listed["data"][0]
    assert one.keys() == {"id", "object", "created", "owned_by"}
