"""Odd JSON from callers: each has an error of its own, and none costs more than a scan."""

import json
from typing import Any

import pytest

from app.api import reading
from app.api.completions import Completions
from app.api.embeddings import Embeddings
from app.api.engine_request import AskedEngine
from app.api.messages import Messages
from app.api.responses import Responses
from app.api.strict_json import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_EXPONENTS,
    MAX_VALUES,
    Budget,
    decode,
)
from app.api.surface import ChatCompletions, Surface
from app.errors.tree import BadJSON, RequestError

CHAT, MESSAGES, RESPONSES = ChatCompletions(), Messages(), Responses()
MIB = 1 << 20


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "invalid_json"),
    "no UTF-8": (b'{"a": "\xff"}', "invalid_utf8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "invalid_json"),
    "NaN": (b'{"a": NaN}', "invalid_json"),
    "an open bracket": (b"[" * 100_000, "invalid_json"),
    "an open string": (b'{"a": "' + b'\\"' * 100_000, "invalid_json"),
    "the first half of a pair": (b'{"a": "\\ud800"}', "invalid_json"),
    "4,301 digits": (b'{"a": ' + b"1" * 4301 + b"}", "number_out_of_range"),
    "309 digits": (b'{"a": -' + b"1" * (MAX_DIGITS + 1) + b"}", "number_out_of_range"),
    "1e999": (b'{"a": 1e999}', "number_out_of_range"),
    "129 levels": (nested(MAX_DEPTH + 1), "nested_too_deeply"),
    "100,000 levels": (nested(100_000), "nested_too_deeply"),
    "many lists": (b"[" + b"[]," * MAX_VALUES + b"1]", "body_too_complex"),
    "many members": (b"{" + b'"a":1,' * MAX_VALUES + b'"a":1}', "body_too_complex"),
    "many exponents": (b"[" + b"1e300," * MAX_EXPONENTS + b"1e300]", "body_too_complex"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_carried_is_refused(name: str) -> None:
    raw, code = REFUSED[name]
    with pytest.raises(BadJSON) as caught:
        decode(raw)
    assert caught.value.code == code and caught.value.message
    assert code != "number_out_of_range" or "too large for a double" in caught.value.message


TAKEN: dict[str, bytes] = {
    "a pair": b'{"a": "\\ud83d\\ude00"}',
    "what looks like half a pair": b'{"a": "\\\\ud800"}',
    "308 digits": b'{"a": ' + b"1" * MAX_DIGITS + b"}",
    "128 levels": nested(MAX_DEPTH),
    "brackets and quotes in a text": json.dumps({"a": '[{"\\' * 100_000}).encode(),
    "token ids": b"[" + b"151643," * 100_000 + b"1]",
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_unusual_and_right_is_taken(name: str) -> None:
    assert decode(TAKEN[name]) == json.loads(TAKEN[name])


def test_the_texts_of_one_request_share_a_budget() -> None:
    """A thousand arguments just below the bound are above it together."""
    budget, text = Budget(), b"[" + b"[]," * 1000 + b"1]"
    for _ in range(MAX_VALUES // 1001):
        decode(text, budget)
    with pytest.raises(BadJSON, match="arrays"):
        decode(text, budget)


def refusal(surface: Surface, body: Any) -> tuple[str, str | None]:
    """The code and the parameter."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(RequestError) as caught:
        surface.parse(raw, 512)
    assert caught.value.status == 400 and caught.value.message
    return caught.value.code, caught.value.param


def call(**function: Any) -> dict[str, Any]:
    """A call of the history."""
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", **function}}


def history(made: Any) -> dict[str, Any]:
    """A chat in which the assistant called."""
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [made]}]
    return {"model": "annie", "messages": turns}


ARGUMENTS = [
    "{", "}", "5", "[]", "null", '"x"', "{'a': 1}", '{"a": 1', '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}',
    '{"a": ' + "1" * 309 + "}", '{"a":' * 200 + "1" + "}" * 200, '{"a": [' + "[]," * MAX_VALUES + "1]}",
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda text: text[:20])
def test_arguments_of_the_history_are_a_json_object(arguments: str) -> None:
    """llama-server answers 500 to others, and three in a row took it from everybody."""
    where = "messages.1.tool_calls.0.function.arguments"
    assert refusal(CHAT, history(call(arguments=arguments))) == ("invalid_value", where)
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    asked = {"model": "annie", "input": [{"role": "user", "content": "Hi"}, item]}
    assert refusal(RESPONSES, asked) == ("invalid_value", "input.1.arguments")


def test_nulls_and_empty_arguments_are_put_right() -> None:
    """What clients send for nothing, and llama-server answers 500 to."""
    tools = [{"type": "function", "function": {"name": "f", "description": None, "parameters": None}}]
    body = {**history({**call(arguments=" "), "id": None}), "tools": tools}
    asked = CHAT.parse(json.dumps(body).encode(), 512)
    sent = json.loads(CHAT.engine_body(asked, AskedEngine("llama-server", "m")))
    assert sent["messages"][1]["tool_calls"] == [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]
    assert sent["tools"] == [{"type": "function", "function": {"name": "f"}}]


LISTS: dict[str, tuple[Surface, str]] = {
    "messages": (CHAT, '{"model":"a","messages":[%s]}'),
    "parts": (CHAT, '{"model":"a","messages":[{"role":"user","content":[%s]}]}'),
    "calls": (CHAT, '{"model":"a","messages":[{"role":"assistant","tool_calls":[%s]}]}'),
    "tools": (CHAT, '{"model":"a","messages":[{"role":"user","content":""}],"tools":[%s]}'),
    "stops": (CHAT, '{"model":"a","messages":[{"role":"user","content":""}],"stop":[%s]}'),
    "turns": (MESSAGES, '{"model":"a","max_tokens":1,"messages":[%s]}'),
    "blocks": (MESSAGES, '{"model":"a","max_tokens":1,"messages":[{"role":"user","content":[%s]}]}'),
    "items": (RESPONSES, '{"model":"a","input":[%s]}'),
    "inputs": (Embeddings(), '{"model":"a","input":[%s]}'),
    "prompts": (Completions(), '{"model":"a","prompt":[%s]}'),
}


@pytest.mark.parametrize("name", LISTS)
def test_one_fault_of_a_list_is_enough(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million wrong items are not told one by one: each costs 2 us, and nobody reads them."""
    surface, frame = LISTS[name]
    seen: list[int] = []

    def counted(error: Any, body: Any) -> Any:
        seen.append(error.error_count())
        return real(error, body)

    real = reading.field_error
    monkeypatch.setattr(reading, "field_error", counted)
    refusal(surface, (frame % ",".join(["1.5"] * (MIB // 4))).encode())
    assert sum(seen) <= 8


def test_too_many_turns_are_not_looked_at_one_by_one() -> None:
    """Also where an API calls them otherwise."""
    rows: list[tuple[Surface, dict[str, Any], str]] = [
        (CHAT, {"messages": [1] * 1000}, "messages"),
        (MESSAGES, {"messages": [1] * 1000, "max_tokens": 9}, "messages"),
        (RESPONSES, {"input": [1] * 1000}, "input"),
    ]
    for surface, body, field in rows:
        assert refusal(surface, {"model": "annie", **body}) == ("too_many_messages", field)
