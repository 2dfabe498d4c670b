"""Whoever may ask can bring many requests at once that are costly to read: others go on between two of them, and who leaves costs nothing."""

import asyncio
import threading
from collections import Counter
from typing import Any, cast

import pytest

from app.api.surface import ParsedRequest, Surface
from app.errors.tree import Busy
from app.proxy.reading import (
    LITTLE_BYTES,
    LITTLE_MARKS,
    MOST_MARKS,
    MOST_WAITING,
    REQUEST_THREADS,
    RequestReader,
)
from tests.app.house import eventually
from tests.app.http.test_turns import MANY, together
from tests.scale import PATIENCE

pytestmark = pytest.mark.asyncio

LITTLE = b"<" * LITTLE_MARKS
SOME = {"bytes": b"x" * (LITTLE_BYTES + 1), "marks": b"<" * (LITTLE_MARKS + 1)}
MUCH = b"<" * (MOST_MARKS + 1)


class Surfaces:
    """Stands for an API: notes what was read in which thread; the reading of MUCH waits until it is `open`."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.entered, self.open = Counter[bytes](), threading.Event()

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        if threading.current_thread() is not threading.main_thread():
            self.entered[raw] += 1
            assert self.open.wait(PATIENCE)
        self.read.append(raw)
        return cast(ParsedRequest, raw)


@pytest.fixture
def surface() -> Surfaces:
    return Surfaces()


def reads(reader: RequestReader, surface: Surfaces, raw: bytes) -> Any:
    return asyncio.create_task(reader.read(cast(Surface, surface), raw, 9), name="test")


@pytest.mark.parametrize(
    ("raw", "at_once"), [*((raw, 1) for raw in SOME.values()), (LITTLE, MANY)], ids=[*SOME, "little"]
)
async def test_what_takes_milliseconds_is_read_once_in_an_iteration(
    surface: Surfaces, raw: bytes, at_once: int
) -> None:
    reader = RequestReader()
    assert await together(lambda: reader.read(cast(Surface, surface), raw, 9)) == at_once


async def test_so_many_wait_for_a_thread_and_no_more(surface: Surfaces) -> None:
    reader = RequestReader()
    tasks = [reads(reader, surface, MUCH) for _ in range(REQUEST_THREADS + MOST_WAITING)]
    await eventually(
        lambda: surface.entered[MUCH] == REQUEST_THREADS and reader._threads.line.waiting == MOST_WAITING
    )
    with pytest.raises(Busy) as refused:
        await reads(reader, surface, MUCH)
    assert (refused.value.code, "are being served" in refused.value.message) == ("queue_full", True)
    assert await reads(reader, surface, LITTLE) == LITTLE  # it needs no thread
    surface.open.set()
    assert await asyncio.gather(*tasks) == [MUCH] * len(tasks)
    assert (reader._threads.line.in_flight, reader._threads.line.waiting) == (0, 0)


async def test_who_leaves_gives_up_his_place_in_the_line_and_a_thread_keeps_its_place_until_it_is_free(
    surface: Surfaces,
) -> None:
    """Else requests whose callers are gone would pile up before the threads, with all their bytes."""
    reader = RequestReader()
    tasks = [reads(reader, surface, MUCH) for _ in range(REQUEST_THREADS + MOST_WAITING)]
    await eventually(
        lambda: surface.entered[MUCH] == REQUEST_THREADS and reader._threads.line.waiting == MOST_WAITING
    )
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [asyncio.CancelledError] * len(tasks)
    await eventually(lambda: reader._threads.line.waiting == 0)
    assert reader._threads.line.in_flight == REQUEST_THREADS
    later = reads(reader, surface, MUCH)
    await eventually(lambda: reader._threads.line.waiting == 1)
    surface.open.set()
    assert await later == MUCH
    await eventually(lambda: reader._threads.line.in_flight == 0)
    assert surface.read == [MUCH] * (REQUEST_THREADS + 1)
