"""A whole reply with millions of values where few belong is refused before any of them is built."""

import json
import tracemalloc
from typing import Any

import pytest

from app.api.embeddings import Embeddings
from app.errors.tree import EngineBroke
from app.proxy.whole_reply import PIECE_BYTES, check_outline, logprob_pieces
from app.stream.spoken_tokens import SpokenTokens
from tests.app.house import House
from tests.script import status

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZE = 4 << 20
LISTS = b"[" + b"[]," * (SIZE // 3) + b"1]"
OBJECTS = b"[" + b"{}," * (SIZE // 3) + b"{}]"
NUMBERS = b"[" + b"1," * (SIZE // 2) + b"1]"
TEXTS = b"[" + b'"",' * (SIZE // 3) + b'""]'
KEYS = b"{" + b",".join(b'"%d":1' % number for number in range(SIZE // 12)) + b"}"
CHOICE = b'{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}'


def reply(choices: bytes = b"[" + CHOICE + b"]", more: bytes = b"") -> bytes:
    """A whole reply, and further members."""
    return b'{"choices":' + choices + more + b"}"


def choice(said: bytes, more: bytes = b"") -> bytes:
    """The choices of one that says this."""
    return b'[{"index":0,"finish_reason":"stop","message":{"role":"assistant",' + said + b"}" + more + b"}]"


HOSTILE: dict[str, tuple[bytes, str]] = {
    "lists in usage": (reply(more=b',"usage":{"a":' + LISTS + b"}"), "upstream_too_large"),
    "objects in usage": (reply(more=b',"usage":{"a":' + OBJECTS + b"}"), "upstream_too_large"),
    "members of usage": (reply(more=b',"usage":' + KEYS), "upstream_too_large"),
    "usage, then another": (reply(more=b',"usage":{"a":' + LISTS + b'},"usage":null'), "upstream_too_large"),
    "usage that is cut off": (reply(more=b',"usage":{"a":' + LISTS), "upstream_malformed"),
    "an error": (reply(more=b',"error":' + LISTS), "upstream_too_large"),
    "an object": (reply(more=b',"object":' + LISTS), "upstream_too_large"),
    "choices": (reply(b"[" + b"{}," * (SIZE // 3) + b"{}]"), "upstream_malformed"),
    "choices, then others": (reply(OBJECTS, b',"choices":[' + CHOICE + b"]"), "upstream_too_large"),
    "a stop": (reply(choice(b'"content":"Hi"', b',"stop_reason":' + LISTS)), "upstream_too_large"),
    "calls": (reply(choice(b'"tool_calls":' + OBJECTS)), "upstream_too_large"),
    "calls, then others": (reply(choice(b'"tool_calls":' + OBJECTS + b',"tool_calls":[]')), "upstream_too_large"),
    "a message, then another": (
        reply(choice(b'"tool_calls":' + OBJECTS, b',"message":{"content":"Hi"}')),
        "upstream_too_large",
    ),
    "tokens": (reply(choice(b'"content":"Hi"', b',"logprobs":{"content":' + OBJECTS + b"}")), "upstream_too_large"),
    "tokens that are none": (reply(choice(b'"content":"Hi"', b',"logprobs":{"content":' + LISTS + b"}")), "upstream_malformed"),
    "a token": (reply(choice(b'"content":"Hi"', b',"logprobs":{"content":[{"token":"H","bytes":' + NUMBERS + b"}]}")), "upstream_too_large"),
    "alternatives of a legacy completion": (reply(choice(b'"content":"Hi"', b',"logprobs":{"top_logprobs":[' + b"{}," * 300_000 + b"{}]}")), "upstream_too_large"),
    "tokens of a legacy completion": (reply(choice(b'"content":"Hi"', b',"logprobs":{"tokens":' + TEXTS + b"}")), "upstream_too_large"),
    **{
        f"{field} of {name}": (reply(choice(b'"%b":%b' % (field.encode(), items))), "upstream_too_large")
        for field in ("content", "reasoning", "reasoning_content")
        for name, items in (("lists", LISTS), ("objects", OBJECTS), ("numbers", NUMBERS), ("texts", TEXTS), ("members", KEYS))
    },
    "a completion's text of lists": (reply(choice(b'"content":"Hi"', b',"text":' + LISTS)), "upstream_too_large"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_nothing_is_built_of_what_does_not_belong_there(name: str) -> None:
    raw, code = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(EngineBroke) as caught:
            check_outline(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == code
    assert peak < 2 * len(raw)


@pytest.mark.parametrize("name", ["members of usage", "calls", "a stop"])
async def test_the_caller_is_told_and_the_engine_blamed(home: House, name: str) -> None:
    raw, code = HOSTILE[name]
    home.engine.play(*status(200, raw))
    answer = await home.ask()
    assert (answer.status, answer.error["code"]) == (502, code)
    assert (await home.booked())["outcome"] == "upstream_error"


HONEST: dict[str, dict[str, Any]] = {
    "text": {"content": "[{" * 1_000_000},
    "thoughts": {"content": "Hi", "reasoning_content": "{" * 1_000_000},
    "calls": {"tool_calls": [{"function": {"name": "f", "arguments": json.dumps({"a": "x" * 2_000_000})}}]},
    "nothing": {"content": None, "reasoning": None, "tool_calls": None},
}


@pytest.mark.parametrize("name", HONEST)
async def test_much_that_is_said_is_no_fault(name: str) -> None:
    one = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **HONEST[name]}}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "details": list(range(1000))}
    check_outline(json.dumps({"object": "chat.completion", "choices": [one], "usage": usage}).encode())
    legacy = {
        "tokens": ["a"] * 5000,
        "token_logprobs": [-0.5] * 5000,
        "top_logprobs": [{"abcdefghij": -1.5}] * 5000,
    }
    check_outline(json.dumps({"choices": [{"text": "a" * 300_000, "logprobs": legacy}]}).encode())
    logprobs = {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": [{}] * 20}] * 20_000}
    check_outline(json.dumps({"choices": [{**one, "logprobs": logprobs}], "usage": usage}).encode())


TOKEN = {
    "token": " the",
    "logprob": -0.5,
    "bytes": [32, 116, 104, 101],
    "top_logprobs": [{"token": " a", "logprob": -1.5, "bytes": [32, 97]}] * 20,
}


@pytest.mark.parametrize("said", [{"content": " the" * 2000}, {"content": " the" * 2000, "reasoning": "Hm."}])
@pytest.mark.parametrize("at", ["message", "delta"])
async def test_many_log_probabilities_are_read_in_pieces_and_none_is_lost(
    said: dict[str, str], at: str
) -> None:
    """What one call of C reads, no other thread interrupts. Pieces, because honest ones may be megabytes."""
    tokens = [{**TOKEN, "logprob": -number / 8} for number in range(2000)]
    raw = json.dumps({"choices": [{at: said, "logprobs": {"content": tokens}}]}).encode()
    check_outline(raw)
    pieces = list(logprob_pieces(raw))
    assert max(map(len, pieces), default=0) < PIECE_BYTES + 1024 < len(raw) // 20
    whole, parts = SpokenTokens(), SpokenTokens()
    whole.payload(raw)
    for piece in pieces:
        parts.payload(piece)
    assert parts._tokens == whole._tokens
    assert len(parts._tokens) == (0 if "reasoning" in said else 2000)


@pytest.mark.parametrize("logprobs", [None, {"tokens": ["Hi"], "token_logprobs": [-0.5]}, {"content": None}])
async def test_few_beside_much_text_are_read_without_it(logprobs: dict[str, Any] | None) -> None:
    """Reading them costs by their own size, not by that of the text, which is searched for numbers otherwise."""
    raw = json.dumps({"choices": [{"message": {"content": ",0" * 200_000}, "logprobs": logprobs}]}).encode()
    check_outline(raw)
    assert sum(map(len, logprob_pieces(raw))) < 200


USAGE: dict[str, bytes] = {
    "lists": b'{"a":' + LISTS + b"}",
    "objects": b'{"a":' + OBJECTS + b"}",
    "members": KEYS,
}


@pytest.mark.parametrize("name", USAGE)
async def test_the_usage_of_vectors_is_bounded_too(name: str) -> None:
    raw = b'{"data":[{"embedding":[0.5]}],"usage":' + USAGE[name] + b"}"
    tracemalloc.start()
    try:
        with pytest.raises(EngineBroke) as caught:
            Embeddings().hand_on(raw, "annie")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "upstream_too_large"
    assert peak < 2 * len(raw)
