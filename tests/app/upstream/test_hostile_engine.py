"""Replies that are no honest HTTP or never end: one clear error for one caller, and nothing for the others."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.stream.pipeline import Pipeline
from app.upstream.connection import MAX_HEAD_BYTES
from tests.app.house import GatewayFixture, eventually, forget, house
from tests.app.proxy.test_engine_faults import fresh_connections
from tests.script import (
    DONE,
    Hang,
    Head,
    Raw,
    Say,
    Step,
    Until,
    Wait,
    event,
    finish,
    role,
    status,
    text,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

BIG = {"max_reply_bytes": 8192, "max_stream_bytes": 65_536}
NESTED = b'{"x":' + b"[" * 100_000
FLOOD = MAX_HEAD_BYTES * 2
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
ALIVE = b"6\r\n: hi\n\n\r\n"


def lines(name: bytes, count: int) -> bytes:
    return b"".join(b"%b-%d: %b\r\n" % (name, number, b"v" * 80) for number in range(count))


NO_HTTP: dict[str, tuple[tuple[Step, ...], str]] = {
    "101": ((Raw(b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nx"),), "upstream_malformed"),
    "status 000": ((Raw(b"HTTP/1.1 000 No\r\ncontent-length: 2\r\n\r\n{}"),), "upstream_malformed"),
    "gzip, chunked": ((Raw(HEAD.replace(b"chunked", b"gzip, chunked") + b"\r\n" + ALIVE + b"0\r\n\r\n"),), "upstream_malformed"),
    "gzip and chunked in two lines": (
        (Raw(HEAD.replace(b"transfer", b"transfer-encoding: gzip\r\ntransfer") + b"\r\n" + ALIVE + b"0\r\n\r\n"),),
        "upstream_malformed",
    ),
    "a compressed body that nobody asked for": ((Raw(HEAD + b"content-encoding: gzip\r\n\r\n" + ALIVE + b"0\r\n\r\n"),), "upstream_malformed"),
    "a folded header": ((Raw(b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n"),), "upstream_malformed"),
    "204 with a body": ((Raw(b"HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\n{}"),), "upstream_status"),
    "interim replies without end": ((Raw(b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" * (FLOOD // 32)),), "upstream_too_large"),
    "many headers": ((Raw(HEAD + lines(b"x", FLOOD // 80)),), "upstream_too_large"),
    "a header without end": ((Raw(HEAD + b"x: " + b"y" * FLOOD),), "upstream_too_large"),
    "trailers": ((Raw(HEAD + b"\r\n" + ALIVE + b"0\r\n" + lines(b"t", FLOOD // 80)),), "upstream_too_large"),
    "a chunk extension without end": ((Raw(HEAD + b"\r\n6;x=" + b"y" * FLOOD),), "upstream_too_large"),
    "chunks that are mostly extension": ((Raw(HEAD + b"\r\n"), *[Raw(b"1;x=%b\r\n:\r\n" % (b"y" * 1000))] * (FLOOD // 1000)), "upstream_too_large"),
    "JSON nested too deeply": ((Head(), Say(b"data: " + NESTED + b"\n\n")), "upstream_malformed"),
    "whole JSON nested too deeply": (status(200, NESTED), "upstream_malformed"),
}  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bounded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway with small budgets and little patience."""
    limits = {"first_token": 0.25, "idle": 0.25, "total": 5.0}
    async with house(tmp_path_factory.mktemp("state"), gateway=BIG, timeouts=limits) as it:
        yield it


def fresh(home: GatewayFixture) -> None:
    """As if nothing had happened."""
    home.engine.forget()
    forget(home.gateway.pool)
    fresh_connections(home)


@pytest.mark.parametrize("name", NO_HTTP)
async def test_a_reply_that_is_no_honest_http_hurts_its_own_caller_only(
    home: GatewayFixture, name: str
) -> None:
    """The others keep every byte, although theirs came in the same round."""
    steps, code = NO_HTTP[name]
    fresh_connections(home)
    go = asyncio.Event()
    for number in range(6):
        words = (Say(text(f"{number} one")), Until(go), Say(text(" two") + finish() + DONE))
        home.engine.play(Head(), Say(role()), *words)
    others = [asyncio.create_task(home.ask(stream=number % 2 == 0)) for number in range(6)]
    await home.engine.request(6)
    home.engine.play(Until(go), *steps, Hang())
    odd = asyncio.create_task(home.ask(stream=True))
    await home.engine.request(7)
    go.set()
    answer = await odd
    assert (answer.status, answer.error["code"]) == (502, code)
    texts = sorted([(await other).text for other in others])
    assert texts == [f"{number} one two" for number in range(6)]
    await eventually(lambda: home.is_quiet() and not home.gateway.pool.outstanding)


async def test_a_bug_of_ours_in_reading_is_told_as_the_engines_fault_and_logged_as_ours(
    home: GatewayFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller and the breaker need an UpstreamError, whoever mends it needs the place."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(Pipeline, "close", broken)
    home.engine.play(Head(), Say(role()), Say(text("One")), Wait(0.01))
    assert (await home.ask(stream=True)).frames[-1]["error"]["code"] == "upstream_malformed"
    await home.booked()
    line = [line for line in home.log.lines if line["event"] == "unreadable_reply"][-1]
    assert (line["error"], line["where"][-1].endswith("broken")) == ("ZeroDivisionError", True)
    assert "secret" not in json.dumps(home.log.lines)


async def test_an_interim_heads_headers_are_not_the_replys(home: GatewayFixture) -> None:
    """What a 103 says of itself does not frame the reply."""
    early = b"HTTP/1.1 103 Early\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    whole = {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}
    home.engine.play(Raw(early), *status(200, whole))
    assert (await home.ask(stream=False)).text == "Yes."


@pytest.mark.parametrize(
    "steps",
    [status(200, b" " * 20_000), status(500, b"x" * 100_000), (Head(200, "application/json"), Say(b"x" * 20_000), Hang())],
    ids=["whole", "error", "whole, without an end"],
)  # fmt: skip
async def test_a_whole_body_over_its_budget_is_given_up_at_once(
    bounded: GatewayFixture, steps: tuple[Step, ...]
) -> None:
    fresh(bounded)
    bounded.engine.play(*steps)
    answer = await bounded.ask(stream=False)
    assert (answer.status, answer.error["code"]) == (502, "upstream_too_large")


SECRET = "the prompt was /home/annie/secret on 10.1.2.3"
WORDS: dict[str, tuple[Step, ...]] = {
    "401": status(401, {"error": {"message": SECRET, "code": SECRET}}),
    "404": status(404, {"error": {"message": SECRET}}),
    "429": status(429, {"error": {"message": SECRET}}),
    "500": status(500, {"error": {"message": SECRET, "type": "InternalServerError"}}),
    "500 in HTML": status(500, f"<html>{SECRET}".encode(), "text/html"),
    "503": status(503, {"detail": SECRET}),
    "302": (Head(302, more=(("location", SECRET),), framing="length"),),
    "an error in the stream": (Head(), Say(event({"error": {"message": SECRET}}))),
    "a 500 in the stream": (Head(), Say(event({"error": {"message": SECRET, "code": 500}}))),
    "an error after text": (Head(), Say(text("One")), Wait(0.02), Say(event({"error": {"message": SECRET}}))),
    "a 400 after text": (Head(), Say(text("One")), Wait(0.02), Say(event({"error": {"message": SECRET, "code": 400}}))),
    "an error with status 200": status(200, {"error": {"message": SECRET}}),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
async def test_an_engines_words_reach_neither_caller_nor_log(home: GatewayFixture, name: str) -> None:
    home.engine.play(*WORDS[name])
    answer = await home.ask(stream=True)
    assert b"secret" not in answer.raw
    assert b"engine" in answer.raw
    await home.booked()
    assert "secret" not in json.dumps(home.log.lines)


async def test_what_an_engine_says_of_a_bad_request_is_cut_and_printable(home: GatewayFixture) -> None:
    """The one case in which its words are passed on."""
    home.engine.play(
        *status(422, {"error": {"message": "no\x1b[2J, " + "x" * 9000, "code": "internal_error"}})
    )
    error = (await home.ask()).error
    assert error["message"].startswith("no, xxx")
    assert len(error["message"]) <= 500
    assert error["code"] == "engine_error"


TRACED = f'top_p is 7\n\n  File "/venv/lib/{SECRET}.py", line 12, in answer\n    POST /v1/chat/completions {SECRET}'
TRACED_REFUSALS: dict[str, tuple[Step, ...]] = {
    "a status, as SGLang": status(400, {"object": "error", "message": TRACED, "code": 400}),
    "a status, as vLLM": status(422, {"error": {"message": TRACED, "code": 422}}),
    "a status, no JSON": status(400, TRACED.encode(), "text/plain"),
    "in the stream": (Head(), Say(event({"error": {"message": TRACED, "code": 400}}))),
}


@pytest.mark.parametrize("name", TRACED_REFUSALS)
async def test_of_a_bad_request_no_trace_and_no_path_is_passed_on(home: GatewayFixture, name: str) -> None:
    home.engine.play(*TRACED_REFUSALS[name])
    answer = await home.ask(stream=True)
    assert answer.error["message"] == "top_p is 7"
    assert b"secret" not in answer.raw
    await home.booked()
    assert "secret" not in json.dumps(home.log.lines)


async def test_an_engine_that_is_not_there_gives_no_address_away(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.engine._server.close()
        home.engine.drop_connections()
        fresh_connections(home)
        answer = await home.ask()
    assert answer.error["code"] == "connect_failed"
    assert b"127.0.0.1" not in answer.raw
    assert str(home.engine.port).encode() not in answer.raw
