"""Whatever an engine prints, others have their turns, and its log says how it began and how it ended."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.engine import output
from deploy.engine.log import LogFile
from deploy.engine.output import (
    BURST,
    DROP_BYTES,
    LAST_BYTES,
    LINE_BYTES,
    RATE,
    READ_BYTES,
    EngineOutput,
    log_output,
)


class Notebook(LogFile):
    """A log that keeps what it is given."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.notes: list[str] = []
        self.turns: list[int] = []
        self.turn = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def write(self, *lines: bytes) -> None:
        self.lines += lines
        self.turns += [self.turn] * len(lines)

    @property
    def left_out(self) -> int:
        """The bytes that it says are missing."""
        return sum(int(note.partition(" ")[0]) for note in self.notes)


@given(st.lists(st.binary(max_size=9), max_size=20))
def test_what_is_little_is_logged_line_by_line_however_it_is_cut(reads: list[bytes]) -> None:
    whole, cut = Notebook(), Notebook()
    for log, given_reads in ((whole, [b"".join(reads)]), (cut, reads)):
        of = EngineOutput(log, 0.0)
        for data in given_reads:
            of.feed(data, 0.0)
        of.close()
    assert cut.lines == whole.lines and not cut.notes


FLOODS = {
    "empty lines": b"\n",
    "carriage returns": b"\r",
    "lines": b"some words of a request\n",
    "binary": bytes(range(256)),
    "without an end": b"x",
}


@pytest.mark.parametrize("piece", FLOODS.values(), ids=FLOODS.keys())
@pytest.mark.parametrize("size", [1, 100, READ_BYTES, DROP_BYTES])
def test_of_a_flood_so_much_is_logged_and_its_end(piece: bytes, size: int) -> None:
    log, count = Notebook(), 5 * BURST if size > 100 else 300 * size
    of = EngineOutput(log, 0.0)
    if size <= 100:
        of._allowed = 50.0 * size  # the same, sooner
    room = of._allowed
    data = (piece * size)[:size]
    for _ in range(count // size):
        of.feed(data, 0.0)
    of.feed(b"\nthe end", 0.0)
    of.close()
    assert of._allowed <= room and not of.is_too_much
    assert log.lines[-1].endswith(b"the end")
    cost = sum(len(line) + LINE_BYTES for line in log.lines)
    assert cost <= room + size * (1 + LINE_BYTES) + LAST_BYTES * (1 + LINE_BYTES) + LINE_BYTES * 3
    printed = count // size * size + len(b"\nthe end")
    ends = printed - sum(map(len, log.lines)) - log.left_out
    assert 0 <= ends <= len(log.lines) * 2, "what is neither logged nor counted are ends of lines"


def test_it_is_logged_again_when_it_prints_less() -> None:
    log = Notebook()
    of = EngineOutput(log, 0.0)
    while not of.is_too_much:
        of.feed(b"x" * READ_BYTES + b"\n", 0.0)
    of.feed(b"lost\n", 0.5)
    assert b"lost" not in log.lines and of.is_too_much
    of.feed(b"heard\n", 1.0 + READ_BYTES / RATE)
    of.feed(b"again\n", 1.1)
    assert log.lines[-2:] == [b"heard", b"again"] and len(log.notes) == 1
    for second in range(100):
        of.feed(b"x" * (RATE // 2) + b"\n", 2.0 + second)
    assert len(log.notes) == 1, "what is less than the rate is logged for ever"


async def test_others_have_their_turns_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "BURST", 10 * READ_BYTES * (1 + LINE_BYTES))
    log, stream = Notebook(), asyncio.StreamReader()

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            log.turn += 1

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    stream.feed_data(b"\n" * (2 << 20))
    stream.feed_eof()
    await log_output(stream, log)
    beside.cancel()
    assert log.left_out and len(log.lines) + log.left_out == 2 << 20
    assert max(map(log.turns.count, set(log.turns[:-LAST_BYTES]))) <= READ_BYTES


def test_a_log_that_cannot_be_begun_anew_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "engines" / "e.log"
    log = LogFile(path, limit=1000)
    log.write(b"first")
    path.unlink()
    path.parent.rmdir()
    path.parent.write_bytes(b"no folder")
    for _ in range(1000):
        log.write(b"x" * 99)
    assert log._file is not None and log._file.seek(0, 2) <= 1000
    path.parent.unlink()
    log.write(b"y" * 99)
    assert path.read_bytes() == b"y" * 99 + b"\n"
    log.close()
