"""A request larger than the engine's context is the request's fault: 400, no breaker, no failover, nobody else hurt."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.engines import backend
from app.errors.translate import from_status, from_stream, in_stream, is_context_exceeded
from app.errors.tree import ContextExceeded
from gates.reply.events import Broken
from tests.app.house import HELLO, GatewayFixture, configured, house, nano, run
from tests.app.proxy.test_failover import pair
from tests.script import Head, Say, Step, event, reply, role, status

CODE = "context_length_exceeded"
POOL = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
PROMPT = {
    "code": 400,
    "message": "request (9412 tokens) exceeds the available context size",
    "type": "exceed_context_size_error",
}
VLLM_MOST = {
    "code": 400,
    "message": "'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens",
}
SAID: dict[str, tuple[int, dict[str, Any]]] = {
    "llama-server, the prompt": (400, PROMPT),
    "llama-server, the pool": (500, POOL),
    "llama-server, a text to embed": (500, {"code": 500, "message": "input (600 tokens) is too large to process. increase"}),
    "vllm, max_tokens": (400, VLLM_MOST),
    "vllm, the prompt": (400, {"message": "prompt (length 9000) is longer than the maximum model length of 4096.", "code": 400}),
    "vllm, a multimodal prompt": (500, {"message": "The prompt (total length 9000) is too long to fit into the model"}),
    "sglang": (400, {"message": "The input (12014 tokens) is longer than the model's context length", "code": 400}),
    "openai": (400, {"message": "This model's maximum context length is 4097 tokens.", "code": CODE}),
    "a code alone": (400, {"message": "no", "code": CODE}),
    "a proxy that says 422": (422, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}),
}  # fmt: skip


@pytest.mark.parametrize(("code", "error"), SAID.values(), ids=SAID)
def test_both_engines_words_for_it_mean_the_same(code: int, error: dict[str, Any]) -> None:
    """As a status, and in the stream before and after the first word; the engine's text goes nowhere."""
    found = from_status(code, json.dumps({"error": error}).encode())
    assert isinstance(found, ContextExceeded) and (found.status, found.code) == (400, CODE)
    assert error["message"] not in found.message
    broken = Broken(error["message"], str(error.get("type") or error.get("code")), code, by_engine=True)
    assert isinstance(from_stream(broken), ContextExceeded)
    assert isinstance(in_stream(broken), ContextExceeded)


@pytest.mark.parametrize(
    "message",
    ["", "the context is wonderful", "Failed to parse input at pos 3", "slot unavailable", "x" * 9999 + "context length exceeded"],
)  # fmt: skip
def test_other_words_do_not(message: str) -> None:
    assert not is_context_exceeded(message, "server_error")


FULL: dict[str, tuple[Step, ...]] = {
    "as a status": status(500, {"error": POOL}),
    "in the stream": (Head(), Say(role()), Say(event({"error": POOL}))),
    "of the prompt": status(400, {"error": PROMPT}),
}


@pytest.mark.parametrize("steps", FULL.values(), ids=FULL)
@pytest.mark.parametrize("stream", [True, False])
async def test_nobody_else_is_asked_and_the_engine_stays(
    tmp_path: Path, steps: tuple[Step, ...], stream: bool
) -> None:
    async with pair(tmp_path) as (home, live, spare):
        live.always(*steps)
        for _ in range(4):
            answer = await home.ask(stream=stream, max_tokens=9)
            assert (answer.status, answer.error["code"]) == (400, CODE)
            assert answer.error["type"] == "invalid_request_error"
            assert answer.headers["x-manners-engine"] == "live"
        assert spare.requests == []
        live.always(*reply("Hello there."))
        assert (await home.ask()).headers["x-manners-engine"] == "live"
        metrics = await home.metrics()
        assert metrics("manners_failovers_total") == metrics("manners_engine_faults_total") == 0
        assert metrics("manners_requests_total", outcome="client_error", engine="live") == 4
        assert not [line for line in home.log.lines if line["event"] == "breaker"]


async def test_a_pool_that_was_full_for_a_moment_is_asked_once_more(tmp_path: Path) -> None:
    """llama-server fails every request that it has when one fills the pool, and clears it."""
    async with house(tmp_path) as home:
        home.engine.play(*status(500, {"error": POOL}))
        assert (await home.ask(max_tokens=9)).text == "Hello there."
        line = await home.booked()
        assert line["outcome"] == "ok" and len(home.engine.requests) == 2
        home.engine.always(*status(500, {"error": POOL}))
        assert (await home.ask(max_tokens=9)).error["code"] == CODE
        assert len(home.engine.requests) == 4


async def test_a_request_without_a_limit_gets_the_models(tmp_path: Path) -> None:
    """On every API of texts; a caller's own number stays, and a thought's budget comes on top."""
    async with house(tmp_path, max_tokens=100, thinking=50) as home:
        off = {"thinking": {"type": "disabled"}}
        asked: list[tuple[str, dict[str, Any], int | None]] = [
            ("chat/completions", {"messages": HELLO}, 150),
            ("chat/completions", {"messages": HELLO, **off}, 100),
            ("chat/completions", {"messages": HELLO, "max_tokens": 7}, 7),
            ("chat/completions", {"messages": HELLO, "max_tokens": None}, 150),
            ("chat/completions", {"messages": HELLO, "max_completion_tokens": 7}, None),
            ("responses", {"input": "Hello!"}, 150),
            ("responses", {"input": "Hello!", "max_output_tokens": 7}, 7),
            ("messages", {"messages": HELLO, "max_tokens": 7}, 7),
            ("completions", {"prompt": "Hello"}, 100),
        ]
        for path, fields, most in asked:
            home.engine.forget()
            url = f"{home.url}/v1/{path}"
            async with home.client.post(url, json={"model": "annie", **fields}) as answer:
                assert answer.status == 200, await answer.text()
            assert (await home.engine.request()).body.get("max_tokens") == most, (path, fields)


async def test_a_limit_of_ours_never_makes_a_request_too_large(tmp_path: Path) -> None:
    """vLLM refuses what the context cannot hold; without a number it takes what is left."""
    code, error = SAID["vllm, max_tokens"]
    async with house(tmp_path, dialect="vllm") as home:
        home.engine.choose = lambda seen: (
            status(code, {"error": error}) if "max_tokens" in seen.body else None
        )
        assert (await home.ask()).text == "Hello there."
        first, second = home.engine.requests
        assert first.body.pop("max_tokens") == 1024
        assert "max_tokens" not in second.body
        assert (await home.ask(max_tokens=5000)).error["code"] == CODE


async def test_a_context_that_stays_full_while_nobody_gets_a_token_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an engine that says so of a few words would keep its place for ever, and fail every request."""
    monkeypatch.setattr(backend, "LOOK_SECONDS", 0.01)
    async with house(tmp_path) as home:
        (watched,) = home.gateway.pool._backends.values()
        home.engine.probes = status(500, {"error": POOL})
        watched.seen -= backend.FULL_SECONDS
        line = await home.log.until(1, "breaker")
        assert (line["state"], line["reason"]) == ("open", "probe_failed")


@pytest.mark.slow  # a real engine fills its context: 3 s
@pytest.mark.engine
async def test_a_shared_context_that_is_filled_ends_the_requests_and_not_the_engine(tmp_path: Path) -> None:
    """The pool of `--ctx-size` alone, too small for three at once: whoever fails is told so, and the next is served."""
    engine = nano("annie-nano-q4_k_m", "--ctx-size", "512")
    async with run(configured(tmp_path, {"nano": engine}, annie={"live": "nano"})) as home:
        answers = await asyncio.gather(*(_json(home, max_tokens=480) for _ in range(3)))
        assert {(a.status, a.json.get("error", {}).get("code")) for a in answers} <= {
            (200, None),
            (400, CODE),
        }
        assert [(await home.ask(max_tokens=4)).status for _ in range(3)] == [200] * 3
        answer = await home.ask(messages=[{"role": "user", "content": "a b c d " * 400}])
        assert (answer.status, answer.error["code"]) == (400, CODE)
        assert not [line for line in home.log.lines if line["event"] == "breaker"]


async def _json(home: GatewayFixture, **more: Any) -> Any:
    messages = [{"role": "user", "content": "Tell me everything about Mysuru."}]
    return await home.ask(messages=messages, response_format={"type": "json_object"}, **more)
