"""A log that cannot be written, or is not read, costs lines and no request."""

import contextlib
import errno
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from app.telemetry import log as logs
from tests.app.house import house


@contextmanager
def log_to(stream: Any, level: str = "info") -> Iterator[Any]:
    """A log that goes there."""
    outer = structlog.get_config()
    try:
        yield logs.configure(level, stream)
    finally:
        structlog.configure(**outer)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def is_whole(seen: list[dict[str, Any]], count: int) -> None:
    """Every line is there in its order, or among those that are said to be lost."""
    at = 0
    for line in seen:
        if line["event"] == "log_lines_lost":
            at += line["count"]
        else:
            assert line["count"] == at
            at += 1
    assert at == count


@pytest.mark.parametrize("size", [10, 3000, 9000, 200_000], ids=["short", "long", "longer", "than the pipe"])
def test_a_reader_that_has_stopped_reading_is_not_waited_for(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And gets whole lines when it goes on, with the number of those that it missed."""
    monkeypatch.setattr(logs, "PIPE_BYTES", 1 << 16)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    seen, count = b"", 0
    with open(writer, "wb") as stream, log_to(stream) as log:
        for _ in range(3):
            for _ in range(max(100_000 // (size + 100), 9)):
                log.info("x", count=count, reason="y" * size)
                count += 1
            with contextlib.suppress(BlockingIOError):
                while data := os.read(reader, 1 << 20):
                    seen += data
        for _ in range(500):  # until nothing is behind any more
            log.info("x", count=count, reason="")
            count += 1
            with contextlib.suppress(BlockingIOError):
                seen += os.read(reader, 1 << 20)
    os.close(reader)
    found = lines_of(seen)
    assert any(line["event"] == "log_lines_lost" for line in found)
    is_whole(found, count)


class NoRoom(io.BytesIO):
    """A disk with so many bytes left; a write that does not fit is cut."""

    left = 0

    def write(self, data: Any) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, "no space")
        taken = super().write(bytes(data)[: self.left])
        self.left -= taken
        return taken


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from([0, 50, 5000])), max_size=30))
def test_whatever_room_there_is_no_line_is_torn_and_none_is_lost_without_a_word(
    steps: list[tuple[int, int]],
) -> None:
    disk, count = NoRoom(), 0
    with log_to(disk) as log:
        for room, size in [*steps, (1 << 20, 0), (1 << 20, 0)]:
            disk.left = room
            log.info("x", count=count, reason="y" * size)
            count += 1
    is_whole(lines_of(disk.getvalue()), count)


async def test_callers_are_served_while_nothing_can_be_logged(tmp_path: Path) -> None:
    async with house(tmp_path) as home:

        def full(text: Any) -> int:
            raise OSError(errno.ENOSPC, "no space")

        home.log.write = full  # type: ignore[method-assign]
        for stream in (True, False):
            assert (await home.ask(stream=stream)).text == "Hello there."
        assert (await home.ask(model="nobody")).status == 404
        assert (await home.get(home.url + "/readyz")).status == 200
        del home.log.write
        assert (await home.ask()).status == 200
        line = await home.log.until(1, "log_lines_lost")
        assert line["count"] >= 2


def test_a_name_that_no_text_can_hold_is_logged() -> None:
    tape = io.BytesIO()
    with log_to(tape) as log:
        log.error("x", engine="a\ud800b")
    assert b"\\ud800" in tape.getvalue()
