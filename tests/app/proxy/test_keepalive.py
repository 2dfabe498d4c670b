"""Signs of life: a silent stream is kept alive where a model wants it, and nothing else changes by it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.api.surface import COMMENT
from app.config.config import ConfigError, parse
from gates.reply.events import Text
from tests.app.house import HELLO, GatewayFixture, frames, house, said
from tests.app.proxy.caller import Caller
from tests.app.proxy.test_clocks import THINK
from tests.app.proxy.test_failover import pair
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    CloseNow,
    Hang,
    Head,
    Say,
    Step,
    Until,
    Wait,
    event,
    finish,
    reply,
    role,
    status,
    text,
    thought,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = 0.03  # seconds of silence; far below what a script is silent for
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway whose callers hear of it when nothing is said."""
    async with house(tmp_path_factory.mktemp("state"), keepalive=SOON) as it:
        yield it


async def read_until(response: Any, enough: Callable[[bytes], bool]) -> bytes:
    """What has come when it is enough."""
    raw = b""
    async with asyncio.timeout(PATIENCE):
        while not enough(raw):
            part = await response.content.readany()
            assert part, raw
            raw += part
    return raw


async def nothing_broke(home: GatewayFixture) -> None:
    """Some more silence, in which a sign for a request that is over would be an error in the log."""
    await asyncio.sleep(3 * SOON)
    assert not [line for line in home.log.lines if line["event"] in ("internal_error", "library")]


APIS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    # path: what is asked, the sign of life, and how the reply ends
    "chat/completions": ({"messages": HELLO}, COMMENT, DONE),
    "completions": ({"prompt": "Hello"}, COMMENT, DONE),
    "responses": ({"input": "Hello"}, COMMENT, b'"type":"response.completed"'),
    "messages": ({"messages": HELLO, "max_tokens": 9}, PING, b'{"type":"message_stop"}\n\n'),
}
SILENCES = {"before its head": 0, "before its first token": 2}


@pytest.mark.parametrize("silence", SILENCES)
@pytest.mark.parametrize("path", APIS)
async def test_a_caller_of_a_long_prefill_hears_that_we_are_alive(
    home: GatewayFixture, path: str, silence: str
) -> None:
    """On every API, again and again, wherever the engine is silent; and then the reply, whole."""
    body, sign, end = APIS[path]
    go, said_at = asyncio.Event(), SILENCES[silence]
    told = event({"choices": [{"index": 0, "text": "One."}]}) if path == "completions" else text("One.")
    last = (
        event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        if path == "completions"
        else finish()
    )
    steps: list[Step] = [Head(), Say(role()), Say(told), Say(last), Say(DONE)]
    home.engine.play(*steps[:said_at], Until(go), *steps[said_at:])
    url = f"{home.url}/v1/{path}"
    async with home.client.post(url, json={"model": "annie", "stream": True, **body}) as response:
        before = await read_until(response, lambda raw: raw.count(sign) >= 3)
        assert before == sign * (len(before) // len(sign))
        go.set()
        after = await response.read()
    assert response.status == 200 and response.headers["content-type"].startswith("text/event-stream")
    assert (response.headers["x-manners-engine"], response.headers["cache-control"]) == (
        "scripted",
        "no-store",
    )
    assert after.count(b"One.") >= 1 and end in after
    assert (await home.booked())["outcome"] == "ok"


async def test_off_there_is_none(tmp_path: Path) -> None:
    """Which is how it is when nobody says otherwise: the status waits for the first word."""
    async with house(tmp_path) as home:
        home.engine.play(Head(), Say(role()), Wait(5 * SOON), Say(text("One.")), Say(finish()), Say(DONE))
        answer = await home.ask(stream=True)
        assert COMMENT not in answer.raw and answer.text == "One."
        home.engine.play(Head(), Say(role()), Wait(5 * SOON), CloseNow())
        assert (await home.ask(stream=True)).status == 502


# Failover, and errors.


LATE: dict[str, tuple[tuple[Step, ...], str]] = {
    "it never answers": ((Hang(),), "first_token_timeout"),
    "it falls silent behind a thought": ((Head(), Say(thought("Hm.")), Hang()), "idle_timeout"),
    "it says 500, late": ((Wait(3 * SOON), *status(500)), "upstream_status"),
    "its first frame is an error, late": (
        (Head(), Wait(3 * SOON), Say(event({"error": {"message": "oom", "code": 500}}))),
        "upstream_status",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", LATE)
async def test_behind_a_sign_of_life_another_engine_may_still_answer(tmp_path: Path, fault: str) -> None:
    """One status line, one reply; and signs go on while the second engine thinks."""
    steps, reason = LATE[fault]
    async with pair(tmp_path, keepalive=SOON) as (home, live, spare):
        live.play(*steps)
        spare.play(Head(), Say(role()), Wait(3 * SOON), *reply("Hello.")[2:])
        async with home.begin(**THINK) as response:
            raw = await response.read()
        first, *_ = raw.partition(b"data: ")
        assert first.count(COMMENT) >= 2 and not first.replace(COMMENT, b"")
        assert said(frames(raw.replace(COMMENT, b""))) == "Hello."
        assert response.headers["x-manners-engine"] == "live"  # it was asked when the head went out
        await home.booked()
        metrics = await home.metrics()
        assert metrics("manners_failovers_total", engine="live", reason=reason) == 1
        assert metrics("manners_requests_total", engine="spare", outcome="ok") == 1


TOLD: dict[str, Callable[[bytes], Any]] = {
    "chat/completions": lambda raw: frames(raw)[-1]["error"],
    "completions": lambda raw: frames(raw)[-1]["error"],
    "messages": lambda raw: json.loads(raw.removeprefix(b"event: error\ndata: "))["error"]["details"],
    "responses": lambda raw: json.loads(raw.split(b"\ndata: ")[-1])["response"]["error"],
}


@pytest.mark.parametrize("answered", [False, True], ids=["a fault", "a refusal"])
@pytest.mark.parametrize("path", APIS)
async def test_an_error_behind_a_sign_of_life_is_told_in_the_stream(
    home: GatewayFixture, path: str, answered: bool
) -> None:
    """In the words of its API, and with no false end behind it."""
    body, sign, end = APIS[path]
    refusal = status(400, {"error": {"message": "too long", "code": "context_too_long"}})
    home.engine.play(Wait(4 * SOON), *(refusal if answered else status(500)))
    url = f"{home.url}/v1/{path}"
    async with home.client.post(url, json={"model": "annie", "stream": True, **body}) as response:
        raw = await response.read()
    assert response.status == 200 and raw.startswith(sign)
    rest = raw.replace(sign, b"")
    code = "context_too_long" if answered else "upstream_status"
    error = TOLD[path](rest)
    assert code in error.values()
    assert end not in rest
    line = await home.booked()
    assert (line["outcome"], line["code"]) == ("client_error" if answered else "upstream_error", code)
    await nothing_broke(home)


async def test_the_wait_in_the_queue_stays_silent(tmp_path: Path) -> None:
    """Whoever waits may still be told 429, and to come again."""
    timeouts = {"first_token": 0.3, "idle": 5.0}
    async with house(tmp_path, keepalive=SOON, concurrency=1, timeouts=timeouts) as home:
        home.engine.play(Head(), Say(text("One")), Hang())
        async with home.begin() as first:
            await first.content.readany()
            answer = await home.ask(stream=True)
            assert (answer.status, answer.error["code"]) == (429, "queue_timeout")
            first.close()


# The timer by itself.


class Clock:
    """Decides what time it is."""

    now = 1000.0

    def perf_counter(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    monkeypatch.setattr("app.proxy.reply_writer.time", it)
    return it


def signs(caller: Caller) -> int:
    """How many it got."""
    return caller.transport.out.count(COMMENT)


async def test_a_sign_is_due_when_the_caller_got_nothing_for_so_long(clock: Clock) -> None:
    """Since the request came: the wait in the queue was silent, too. The head goes out with the first, once."""
    caller = Caller(came=clock.now - 3000)
    caller.writer.keep_alive()
    assert not caller.transport.out
    for seconds, count in ((599, 0), (1, 1), (3599, 1), (1, 2)):
        clock.now += seconds
        caller.writer._look()
        assert signs(caller) == count
    assert caller.transport.out.count(b"HTTP/1.1 200 OK\r\n") == 1
    caller.writer.close()


@pytest.mark.parametrize("seen", [True, False], ids=["text", "what the clocks do not count as shown"])
async def test_whatever_the_caller_gets_puts_the_next_sign_off(clock: Clock, seen: bool) -> None:
    """Nothing is set again for it: the timer that looks finds that it is too early."""
    caller = Caller(came=clock.now)
    caller.writer.keep_alive()
    clock.now += 3000
    if seen:
        caller.context.clocks.text("One", clock.now)
    else:
        caller.writer.events([Text(0, "One")], False)
    for seconds, count in ((600, 0), (2999, 0), (1, 1)):
        clock.now += seconds
        caller.writer._look()
        assert signs(caller) == count
    caller.writer.close()


@pytest.mark.parametrize("seconds", [-1.0, 90_000.0, "soon"])
async def test_a_silence_is_a_number_of_seconds(tmp_path: Path, seconds: Any) -> None:
    engines = {"far": {"dialect": "vllm", "driver": "url", "url": "http://127.0.0.1:9"}}
    with pytest.raises(ConfigError, match="models.annie.keepalive"):
        parse({"engines": engines, "models": {"annie": {"live": "far", "keepalive": seconds}}}, tmp_path)
