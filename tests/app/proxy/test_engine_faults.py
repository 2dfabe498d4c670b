"""What an engine may do wrong, and what the caller is told: a real status first, one frame later."""

import asyncio

import pytest

from app.telemetry.reply_window import NO_FAULT
from tests.app.house import GatewayFixture, frames, said
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    CloseNow,
    Head,
    Raw,
    Reset,
    Say,
    Step,
    Until,
    event,
    finish,
    reply,
    role,
    status,
    text,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPENAI_ERROR = {
    "error": {"message": "no, because", "type": "invalid_request_error", "code": "context_too_long"}
}
VLLM_ERROR = {"error": {"message": "no, because", "type": "BadRequestError", "param": None, "code": 400}}
LENT = {"error": {"message": "no, because", "code": "engine_busy"}}
NO_MODEL = {"error": {"message": "no, because", "code": "model_not_found"}}
SENTENCE_CODE = {"error": {"message": "no", "type": "the prompt was: secret", "code": "secret words"}}

BEFORE: dict[str, tuple[tuple[Step, ...], int, str, str]] = {
    # script: status, code, type
    "400": (status(400, OPENAI_ERROR), 400, "context_too_long", "invalid_request_error"),
    "400 of vLLM": (status(400, VLLM_ERROR), 400, "BadRequestError", "invalid_request_error"),
    "400 with sentences for codes": (status(400, SENTENCE_CODE), 400, "engine_error", "invalid_request_error"),
    "404": (status(404, OPENAI_ERROR), 502, "upstream_status", "upstream_error"),
    **{
        str(number): (status(number, OPENAI_ERROR), 502, "upstream_status", "upstream_error")
        for number in (402, 405, 406, 407, 408, 410, 411, 418, 421, 425, 426, 428, 431, 498, 499)
    },
    "429": (status(429, OPENAI_ERROR), 503, "engine_busy", "upstream_error"),
    "500": (status(500, b"Internal Server Error", "text/plain"), 502, "upstream_status", "upstream_error"),
    "503": (status(503, b"loading"), 503, "engine_busy", "upstream_error"),
    "an error of 100 kB": (status(500, b"x" * 100_000), 502, "upstream_too_large", "upstream_error"),
    "no HTTP": ((Raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), CloseNow()), 502, "upstream_malformed", "upstream_error"),
    "a head without end": (
        (Raw(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000), CloseNow()),
        502,
        "upstream_too_large",
        "upstream_error",
    ),
    "closed before the head": ((CloseNow(),), 502, "upstream_disconnected", "upstream_error"),
    "closed inside the head": ((Raw(b"HTTP/1.1 200 O"), CloseNow()), 502, "upstream_truncated", "upstream_error"),
    "not JSON": (status(200, b"{nope"), 502, "upstream_malformed", "upstream_error"),
    "JSON of another shape": (status(200, b"[1]"), 502, "upstream_malformed", "upstream_error"),
    "an error with status 200": (status(200, OPENAI_ERROR), 502, "context_too_long", "upstream_error"),
    "an error first": ((Head(), Say(event(OPENAI_ERROR)), Say(DONE)), 502, "context_too_long", "upstream_error"),
    "an error first, of the caller": (
        (Head(), Say(role()), Say(event(VLLM_ERROR)), Say(DONE)),
        400,
        "BadRequestError",
        "invalid_request_error",
    ),
    "an error first, by a name of ours": ((Head(), Say(event(LENT)), Say(DONE)), 502, "engine_error", "upstream_error"),
    "an error first, by one of many names": ((Head(), Say(event(NO_MODEL)), Say(DONE)), 502, "engine_error", "upstream_error"),
    "bad JSON first": ((Head(), Say(b"data: {nope\n\n"), Say(DONE)), 502, "upstream_malformed", "upstream_error"),
    "a line without end first": (
        (Head(), *[Say(b"data: " + b"x" * 65_536)] + [Say(b"x" * 65_536)] * 17),
        502,
        "upstream_event_too_long",
        "upstream_error",
    ),
    "role only": ((Head(), Say(role()), Say(DONE)), 502, "upstream_truncated", "upstream_error"),
    "role, then reset": ((Head(), Say(role()), Reset()), 502, "upstream_truncated", "upstream_error"),
    "bad chunking": ((Head(), Raw(b"zz\r\n")), 502, "upstream_malformed", "upstream_error"),
    "a body cut short": ((Head(framing="length", size=999), Say(role()), CloseNow()), 502, "upstream_truncated", "upstream_error"),
}  # fmt: skip


def fresh_connections(home: GatewayFixture) -> None:
    """Forget the pool: on a connection of its own no fault can be the race of a reused one."""
    home.gateway.pool._backends["scripted"].upstream.close()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", BEFORE)
async def test_before_the_first_byte_a_fault_is_a_status(
    home: GatewayFixture, name: str, stream: bool
) -> None:
    """Streaming or not, the caller gets a real status, the envelope, and the engine's name."""
    steps, code_of_http, code, kind = BEFORE[name]
    fresh_connections(home)
    home.engine.play(*steps)
    answer = await home.ask(stream=stream, headers={"x-request-id": "turn-1"})
    error = answer.error
    assert (answer.status, error["code"], error["type"], error["param"]) == (code_of_http, code, kind, None)
    assert answer.headers["x-request-id"] == "turn-1"
    assert answer.headers["x-manners-engine"] == "scripted"
    assert (answer.headers.get("retry-after") is not None) == (code_of_http == 503)
    booked = await home.booked()
    blame = "client_error" if code_of_http < 500 else "upstream_error"
    assert (booked["outcome"], booked["code"], booked["request_id"]) == (blame, code, "turn-1")
    assert len(home.engine.requests) == 1
    assert (await home.ask()).text == "Hello there."


@pytest.mark.parametrize("code", sorted(NO_FAULT))
async def test_an_engine_is_blamed_whatever_it_calls_its_fault(home: GatewayFixture, code: str) -> None:
    """By these names the gateway calls what is no fault of an engine: no breaker opens for them, and no bake ends."""

    async def faults() -> float:
        metrics = await home.metrics()
        return metrics("manners_engine_faults_total", cause="request") + metrics(
            "manners_engine_faults_total", cause="engine"
        )

    before = await faults()
    home.engine.play(Head(), Say(event({"error": {"message": "no", "code": code}})), Say(DONE))
    assert (await home.ask(stream=True)).error["code"] == "engine_error"
    async with asyncio.timeout(PATIENCE):
        while await faults() == before:
            await asyncio.sleep(0.01)


MIDDLE: dict[str, tuple[tuple[Step, ...], str]] = {
    "an error": ((Say(event(OPENAI_ERROR)), Say(DONE)), "context_too_long"),
    "an error of vLLM": ((Say(event(VLLM_ERROR)), Say(DONE)), "BadRequestError"),
    **{
        f"an error by the name of {code}": (
            (Say(event({"error": {"message": "no", "code": code}})),),
            "engine_error",
        )
        for code in (
            "engine_busy",
            "reply_fully_filtered",
            "tool_choice_not_kept",
            "connect_failed",
            "total_timeout",
            "draining",
            "internal_error",
            "invalid_api_key",
            "upstream_status",
        )
    },
    "bad JSON": ((Say(b"data: {nope\n\n"), Say(text("more")), Say(DONE)), "upstream_malformed"),
    "a line without end": ((Say(b"data: "), *[Say(b"x" * 65_536)] * 17), "upstream_event_too_long"),
    "an event without end": (tuple([Say(b"data: " + b"x" * 65_000 + b"\n")] * 18), "upstream_event_too_long"),
    "[DONE] without a finish": ((Say(DONE),), "upstream_truncated"),
    "a close": ((CloseNow(),), "upstream_truncated"),
    "a reset": ((Reset(),), "upstream_truncated"),
    "bad chunking": ((Raw(b"zz\r\n"),), "upstream_malformed"),
}


@pytest.mark.parametrize("name", MIDDLE)
async def test_after_the_first_byte_a_fault_is_one_frame(home: GatewayFixture, name: str) -> None:
    """What came is kept, then one error frame: no finish reason, no [DONE], nothing after it."""
    steps, code = MIDDLE[name]
    shown = asyncio.Event()
    home.engine.play(Head(), Say(role()), Say(text("One")), Say(text(" two")), Until(shown), *steps)
    async with home.begin() as response:
        assert response.status == 200
        came = b""
        while b" two" not in came:
            came += await response.content.readany()
        shown.set()
        *chunks, last = frames(came + await response.read())
    assert said(chunks) == "One two"
    assert last["error"].keys() == {"message", "type", "code", "param"}
    assert (last["error"]["code"], last["error"]["type"]) == (code, "upstream_error")
    assert all(choice["finish_reason"] is None for c in chunks for choice in c["choices"])
    booked = await home.booked()
    assert (booked["outcome"], booked["code"]) == ("upstream_error", code)


WHOLE = {"choices": [{"index": 0, "message": {"content": "One two"}, "finish_reason": "stop"}]}
FRAMINGS: dict[str, tuple[Step, ...]] = {
    "JSON from an engine that does not stream": status(200, WHOLE),
    "until the connection closes": (Head(framing="close"), *reply("One", " two")[1:]),
    "with a length": (
        Head(framing="length", size=len(role() + text("One two") + finish() + DONE)),
        Say(role() + text("One two") + finish() + DONE),
    ),
    "after an interim head": (Raw(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"), *reply("One", " two")),
    "without the last blank line": (Head(framing="close"), Say(text("One two") + finish() + b"data: [DONE]")),
    "without [DONE]": (Head(), Say(text("One two")), Say(finish())),
    "with a fault after the finish": (Head(), Say(text("One two")), Say(finish()), Reset()),
    "with usage after the finish": (Head(), Say(text("One two")), Say(finish()), Say(usage(2)), Say(DONE)),
    "with pings and carriage returns": (
        Head(),
        Say(b": ping\r\n\r\n" + text("One").replace(b"\n", b"\r\n") + b"event: x\rid: 7\r\r"),
        Say(text(" two").replace(b"\n", b"\r") + finish() + DONE),
    ),
    "byte by byte": (Head(), *[Say(bytes([b])) for b in role() + text("One two") + finish() + DONE]),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", FRAMINGS)
async def test_whatever_the_framing_the_reply_is_the_same(
    home: GatewayFixture, name: str, stream: bool
) -> None:
    """Chunked, counted or closed; with interim heads, pings, and missing ends."""
    home.engine.play(*FRAMINGS[name])
    answer = await home.ask(stream=stream)
    assert (answer.status, answer.text) == (200, "One two")
    last = answer.frames[-2] if stream else answer.json
    assert last["choices"][0]["finish_reason"] == "stop"
    assert (await home.booked())["outcome"] == "ok"
