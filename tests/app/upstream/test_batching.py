"""Reads of one round are worked off together and written afterwards, in order."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.upstream.batching import MAX_QUEUED_BYTES, IOBatch


class Wire:
    """A transport that remembers."""

    def __init__(self, tape: list[str], name: str, closing: bool = False) -> None:
        self._tape, self._name, self._closing = tape, name, closing

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes) -> None:
        self._tape.append(f"write {self._name} {data.decode()}")


class Connection:
    """A reader that does what it is told with each read."""

    def __init__(self, work: Callable[[bytes], None]) -> None:
        self._work = work
        self.told: list[BaseException | str] = []

    def received(self, data: bytes) -> None:
        self._work(data)

    def failed(self, error: BaseException) -> None:
        self.told.append(error)


def raising(error: BaseException) -> Callable[[bytes], None]:
    def work(data: bytes) -> None:
        raise error

    return work


async def test_writing_waits_until_every_read_is_worked_off() -> None:
    tape: list[str] = []
    batch, a, b = IOBatch(), Wire(tape, "a"), Wire(tape, "b")

    def work(wire: Any, data: bytes) -> None:
        tape.append(f"work {data.decode()}")
        batch.write(wire, data)

    to_a, to_b = Connection(lambda data: work(a, data)), Connection(lambda data: work(b, data))
    batch.read(to_a, b"1")
    batch.read(to_b, b"2")
    batch.read(to_a, b"3")
    assert tape == []
    await asyncio.sleep(0)
    assert tape == ["work 1", "work 2", "work 3", "write a 1", "write b 2", "write a 3"]


RAISED = [
    ValueError(),
    RecursionError(),
    MemoryError(),
    StopIteration(),
    GeneratorExit(),
    asyncio.CancelledError(),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
async def test_a_read_that_raises_fails_its_own_connection_only(error: BaseException) -> None:
    tape: list[bytes] = []
    batch, victim, other = IOBatch(), Connection(raising(error)), Connection(tape.append)
    for reader, data in ((other, b"1"), (victim, b"2"), (other, b"3")):
        batch.read(reader, data)
    await asyncio.sleep(0)
    assert tape == [b"1", b"3"]
    assert victim.told == [error]
    assert other.told == []


class Broken(Wire):
    """A transport that takes nothing."""

    def write(self, data: bytes) -> None:
        raise OSError("no")

    def abort(self) -> None:
        self._tape.append(f"abort {self._name}")


async def test_a_write_that_raises_ends_its_own_connection_only() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    tape: list[str] = []
    batch, broken, well = IOBatch(), Broken(tape, "a"), Wire(tape, "b")

    def work(data: bytes) -> None:
        for wire in (broken, well):
            batch.write(wire, data)  # type: ignore[arg-type]

    batch.read(Connection(work), b"1")
    batch.work()
    assert tape == ["abort a", "write b 1"]


async def test_reads_do_not_pile_up_until_the_end_of_the_round() -> None:
    taken: list[int] = []
    batch = IOBatch()
    reader = Connection(lambda data: taken.append(len(data)))
    for _ in range(9):
        batch.read(reader, bytes(MAX_QUEUED_BYTES // 8))
    assert sum(taken) > MAX_QUEUED_BYTES
