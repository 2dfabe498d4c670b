"""A request that may take long to read is read in a thread, and each of its old turns once."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.api import chat_request
from app.errors.tree import BadField
from app.proxy.reading import takes_long
from gates.contracts.markers import START
from tests.app.house import GatewayFixture, eventually, house
from tests.scale import PATIENCE

pytestmark = pytest.mark.asyncio

OLD = "<think>" * 4000
TURNS = [{"role": "assistant", "content": OLD}, {"role": "user", "content": "Hi"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TURNS},
    "/v1/messages": {"messages": TURNS, "max_tokens": 9},
    "/v1/responses": {"input": TURNS},
}


@pytest_asyncio.fixture
async def home(tmp_path: Path) -> AsyncIterator[GatewayFixture]:
    async with house(tmp_path, dialect="vllm") as it:
        yield it


class Held:
    """Stands for the work on an old turn: waits where it is not done in the event loop's thread."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.calls = 0
        self._error = error

    def __call__(self, text: str) -> str:
        self.calls += 1
        if threading.current_thread() is not threading.main_thread():
            self.entered.set()
            assert self.open.wait(PATIENCE)
        if self._error is not None:
            raise self._error
        return "before"


@pytest.mark.parametrize("path", REQUESTS)
async def test_others_are_served_while_a_request_is_read(
    home: GatewayFixture, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    held = Held()
    monkeypatch.setattr(chat_request, "without_thoughts", held)
    costly = asyncio.create_task(home.post(path, {"model": "annie", **REQUESTS[path]}))
    await eventually(held.entered.is_set)
    for _ in range(3):
        assert (await home.ask(stream=True)).text == "Hello there."
    held.open.set()
    assert (await costly).status == 200
    sent = home.engine.requests[-1].body
    assert (sent["messages"][0]["content"], held.calls) == ("before", 1)


@pytest.mark.parametrize(
    "error, code",
    [
        (BadField("no", param="messages"), (400, "invalid_value")),
        (ValueError(), (500, "internal_error")),
        (StopIteration(), (500, "internal_error")),
        (asyncio.CancelledError(), (500, "internal_error")),
    ],
)
async def test_whatever_is_raised_there_is_told(
    home: GatewayFixture, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: tuple[int, str]
) -> None:
    held = Held(error)
    held.open.set()
    monkeypatch.setattr(chat_request, "without_thoughts", held)
    answer = await home.ask(messages=TURNS)
    assert (answer.status, answer.error["code"]) == code
    assert held.entered.is_set()
    monkeypatch.undo()
    assert (await home.ask()).text == "Hello there."
    assert home.is_quiet()


@pytest.mark.parametrize(
    "content, long",
    [
        (OLD, True),
        ("word " * 100_000, False),
        ("<think>" * 1000, False),
        ("[x" * 9000, True),
        *((first * 18_000, True) for first in START),
        ("\u4f60\u597d" * 100_000, False),
    ],
    ids=["tags", "plain text", "a few tags", "brackets", *map(ascii, START), "plain text in Chinese"],
)
async def test_only_what_may_take_long_waits_for_a_thread(content: str, long: bool) -> None:
    request = json.dumps({"messages": [{"role": "user", "content": content}]}, ensure_ascii=False).encode()
    assert takes_long(request) is long
    assert takes_long(request.replace(b"<", b"\\u003c")) is long


async def test_who_leaves_while_it_is_read_is_not_served(
    home: GatewayFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose body is so large that the reading of its connection paused."""
    held = Held()
    monkeypatch.setattr(chat_request, "without_thoughts", held)
    turns = [{"role": "assistant", "content": OLD + "x" * (200 << 10)}, TURNS[1]]
    costly = asyncio.create_task(home.ask(messages=turns))
    await eventually(held.entered.is_set)
    costly.cancel()
    assert (await home.booked())["outcome"] == "client_cancel"
    held.open.set()
    assert not home.engine.requests
