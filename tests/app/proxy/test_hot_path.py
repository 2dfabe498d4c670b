"""The hot path: a chunk passes no more functions, a request makes no more calls, than docs/architecture.md says."""

import gc
import re
from collections import Counter
from pathlib import Path

import pytest

from app.proxy.context import RequestContext
from app.proxy.deadlines import Deadlines
from app.proxy.exchange import Exchange
from app.proxy.reply_writer import StreamWriter
from app.proxy.response_writer import ResponseWriter
from app.stream.encode import StreamEncoder
from app.stream.parser import Parser
from app.stream.pipeline import Pipeline
from tests.app.house import House, eventually
from tests.bench.calls import count, count_request
from tests.script import DONE, Head, Say, finish, role, text

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTS = 4
PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


def stated(pattern: str) -> re.Match[str]:
    """What the page says."""
    found = re.search(pattern, " ".join(PAGE.read_text("utf-8").split()))
    assert found, pattern
    return found


async def test_a_chunk_passes_no_more_functions_than_the_page_says(home: House) -> None:
    said = stated(r"(\d+) Python functions of (\d+) classes in (\d+) files")
    calls = await count(home)
    found = calls.functions, calls.classes, calls.files
    assert all(n <= int(most) for n, most in zip(found, said.groups(), strict=True)), str(calls)


async def test_a_request_makes_no_more_calls_than_the_page_says(home: House) -> None:
    calls = await count_request(home)
    said = stated(r"at most (\d+) calls of Python functions of ours, (\d+) of them until the engine is asked")
    found = len(calls.made), calls.until_asked
    within = all(n <= int(most) for n, most in zip(found, said.groups(), strict=True))
    assert within, f"{found}; what to do: docs/architecture.md, `python -m tests.bench.calls`"


@pytest.mark.slow  # hundreds of requests are traced: 6 s
async def test_a_request_is_free_without_the_garbage_collector(home: House) -> None:
    """What refers to itself stays in memory until the collector looks for it, which costs every other stream its time."""
    gc.collect()
    gc.disable()
    try:
        before = alive()
        for _ in range(REQUESTS):
            await ask(home)
        grown = {kind.__name__: count for kind, count in (alive() - before).items() if count > REQUESTS / 2}
    finally:
        gc.enable()
    assert not grown


@pytest.mark.slow  # hundreds of requests are traced: 5 s
async def test_what_a_request_made_is_freed_at_its_end_and_not_on_the_time_of_the_next_one(
    home: House,
) -> None:
    """The engine's connection, which stays open, keeps nothing of it."""
    gc.collect()
    gc.disable()
    try:
        before = alive()  # of other tests
        await ask(home)
        await eventually(lambda: not alive() - before)
    finally:
        gc.enable()


def alive() -> Counter[type]:
    """How many there are of what each request makes for itself."""
    kinds = (
        RequestContext,
        Exchange,
        Deadlines,
        StreamWriter,
        ResponseWriter,
        Pipeline,
        Parser,
        StreamEncoder,
    )
    return Counter(type(thing) for thing in gc.get_objects() if type(thing) in kinds)


async def ask(home: House) -> None:
    """A streamed request to its log line."""
    home.engine.play(Head(), Say(role() + text(" word") + finish() + DONE))
    logged = len(home.log.lines)
    async with home.begin() as response:
        await response.read()
    await eventually(lambda: len(home.log.lines) > logged)
