"""What is written down: enough to run a service by, and never what a caller or a model said."""

import io
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import structlog

from app.telemetry import log as logs
from tests.app.house import HELLO, GatewayFixture, house
from tests.script import (
    DONE,
    Head,
    Raw,
    Say,
    Step,
    call,
    event,
    finish,
    reply,
    role,
    status,
    text,
    thought,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "xyzzy-canary-4711"
KEY = "key-of-a-caller-0815"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway with a key, which nobody may read in its log."""
    async with house(tmp_path_factory.mktemp("state"), keys=(KEY,)) as it:
        yield it


def with_key(**headers: str) -> dict[str, str]:
    """Headers of a caller who may come in."""
    return {"authorization": f"Bearer {KEY}", **headers}


def user(content: str) -> dict[str, Any]:
    """A request with this prompt."""
    return {"model": "annie", "messages": [{"role": "user", "content": content}]}


TOOL = {
    "type": "function",
    "function": {"name": CANARY, "description": CANARY, "parameters": {"title": CANARY}},
}
FRAME = {"error": {"message": CANARY, "type": f"a {CANARY}", "code": f"what {CANARY}"}}

PLACES: dict[str, tuple[dict[str, Any] | bytes, tuple[Step, ...]]] = {
    "prompt": (user(CANARY), reply()),
    "reply": (user("Hi"), reply(CANARY, " and more")),
    "thought": (user("Hi"), (Head(), Say(thought(CANARY)), *reply("Yes.")[1:])),
    "tool": ({**user("Hi"), "tools": [TOOL]}, reply("Yes.")),
    "tool call": ({**user("Hi"), "tools": [TOOL]}, (Head(), Say(call(CANARY, f'{{"q": "{CANARY}"}}')), Say(finish()))),
    "raw tool call": (user("Hi"), reply(f'<tool_call>{{"name": "{CANARY}", "arguments": {{}}}}</tool_call>')),
    "broken tool call": (
        {**user("Hi"), "tools": [TOOL]},
        reply(f'<tool_call>{{"name": "{CANARY}", "arguments": {{"{CANARY}": tru{CANARY}'),
    ),
    "unknown model": ({**user("Hi"), "model": CANARY}, ()),
    "unknown field": ({**user("Hi"), CANARY: 1, "stop": [CANARY]}, reply()),
    "wrong type": ({**user("Hi"), "temperature": CANARY}, ()),
    "invalid JSON": (b'{"model": "' + CANARY.encode(), ()),
    "malformed upstream JSON": (user("Hi"), (Head(), Say(f"data: {{{CANARY}\n\n".encode()), Say(DONE))),
    "malformed upstream HTTP": (user("Hi"), (Raw(f"{CANARY}\r\n\r\n".encode()),)),
    "upstream error": (user("Hi"), status(500, CANARY.encode())),
    "error frame later": (user("Hi"), (Head(), Say(text("One")), Say(event(FRAME)))),
    "finish reason": (user("Hi"), (Head(), Say(text("One")), Say(finish(CANARY)), Say(DONE))),
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("place", PLACES)
async def test_no_word_of_a_conversation_is_logged_or_counted(
    home: GatewayFixture, place: str, stream: bool
) -> None:
    """Wherever the canary sits, the log has one line about the request and the canary is not in it."""
    asked, steps = PLACES[place]
    if steps:
        home.engine.play(*steps)
    body = {**asked, "stream": stream} if isinstance(asked, dict) else asked
    await home.ask(body, headers=with_key())
    booked = await home.booked()
    assert {
        "event",
        "level",
        "timestamp",
        "request_id",
        "model",
        "engine",
        "outcome",
        "code",
    } <= booked.keys()
    await is_clean(home)


@pytest.mark.parametrize("path", [f"/v1/models/{CANARY}", f"/{CANARY}", f"/v1/models?q={CANARY}"])
async def test_no_path_is_logged_or_counted(home: GatewayFixture, path: str) -> None:
    """Paths come from callers, too."""
    await home.get(home.url + path, with_key())
    await is_clean(home)


async def is_clean(home: GatewayFixture) -> None:
    """Neither canary nor key in the log and in the metrics; every line is JSON."""
    scraped = await home.get(home.admin + "/metrics")
    for written in (home.log.getvalue(), scraped.raw):
        assert CANARY.encode() not in written
        assert KEY.encode() not in written
    for line in home.log.getvalue().splitlines():
        assert set(json.loads(line)) <= logs.FIELDS


async def test_a_served_request_is_one_line_with_its_times(home: GatewayFixture) -> None:
    """What an operator needs to find it again and to see how it went."""
    home.engine.play(Head(), Say(role()), Say(text("One. Two")), Say(finish()), Say(usage(5)), Say(DONE))
    await home.ask({"model": "annie", "messages": HELLO, "stream": True, "top_k": 1, "foo": 1},
                   headers=with_key(**{"x-request-id": "turn-3"}))  # fmt: skip
    line = await home.booked()
    assert (line["request_id"], line["model"], line["engine"], line["outcome"]) == (
        "turn-3",
        "annie",
        "scripted",
        "ok",
    )
    assert (line["stream"], line["completion_tokens"], line["ignored_fields"], line["calls"]) == (
        True,
        5,
        1,
        [],
    )
    assert 0 < line["first_token"] <= line["first_content"] <= line["seconds"]
    assert line["level"] == "info" and line["timestamp"].endswith(("Z", "+00:00"))


@pytest.fixture
def tape() -> Any:
    """A log of its own; the house's is put back."""
    outer = structlog.get_config()
    out = io.BytesIO()
    yield out, logs.configure(stream=out)
    structlog.configure(**outer)


async def test_a_field_that_is_not_on_the_list_is_lost_and_not_leaked(tape: Any) -> None:
    """A mistake at a call site costs a field."""
    out, log = tape
    log.info("request", model="annie", prompt=CANARY, messages=[CANARY])
    assert CANARY.encode() not in out.getvalue()
    assert json.loads(out.getvalue())["model"] == "annie"


async def test_a_librarys_warning_is_one_json_line(tape: Any) -> None:
    """With the place of an error, and not its message: that may quote a caller."""
    out, _ = tape
    try:
        raise ValueError(CANARY)
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\nmore")
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["event"], first["logger"], first["reason"]) == (
        "library",
        "uvicorn.error",
        "Exception in ASGI application",
    )
    assert first["error"] == "ValueError" and "test_log.py" in first["where"][-1]
    assert second["reason"] == "socket.send() raised exception."
    assert CANARY.encode() not in out.getvalue()


async def test_what_a_library_puts_into_its_message_stays_out(tape: Any) -> None:
    """It may be a caller's: the pairs of a malformed trace are."""
    out, _ = tape
    logging.getLogger("opentelemetry.trace").warning("no pair: %s", CANARY)
    assert json.loads(out.getvalue())["reason"] == "no pair: %s"


async def test_lines_below_the_level_are_not_written() -> None:
    outer, out = structlog.get_config(), io.BytesIO()
    try:
        log = logs.configure("warning", out)
        log.info("quiet")
        log.error("heard")
    finally:
        structlog.configure(**outer)
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["heard"]
