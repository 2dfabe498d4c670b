"""Lines are split where they end, and the log keeps no word of a request."""

import asyncio
from pathlib import Path

import pytest

from deploy.engine.log import LINE_BYTES, LogFile, log_output, withhold


@pytest.mark.parametrize(
    "line",
    [
        b"/src/ggml.c:123: GGML_ASSERT(a == b) failed",
        b"/lib/libc.so.6(+0x8a1c4) [0x7f844b9bffc0]",
        b"Fatal Python error: Segmentation fault",
        b"",
    ],
)
def test_the_marks_of_a_crash_are_kept(line: bytes) -> None:
    assert withhold(line) == line


@pytest.mark.parametrize(
    ("line", "head"),
    [
        (
            b"0.00.079.082 W srv    operator(): got exception: CANARY",
            b"0.00.079.082 W srv    op",
        ),
        (
            b"0.00.068.502 E srv    send_error: task id = 0, CANARY",
            b"0.00.068.502 E srv    send",
        ),
        (
            b"(EngineCore pid=14) ERROR 11-23 14:30:34 [core.py:1090] failed on 'CANARY'",
            b"(EngineCore pid=14) ERROR 11-23 14:30:34 [core.py:1090] [",
        ),
        (b"INFO 11-23 14:30:34 [v1/fp8_qwen3.py:44] CANARY", b"INFO 11-23 14:30:34 [v1/fp8_qwen3.py:44] ["),
        (b"INFO 11-23 14:30:34 [CANARY.py:1] x", b"["),
        (b"CANARY ::= (", b"["),
        (b"parse: error parsing grammar: expecting ')' at CANARY", b"["),
        (b"WARNING: JSON schema conversion was incomplete: pattern CANARY([", b"["),
        (b"# /src/CANARY.c:1: GGML_ASSERT(x) failed CANARY"[2:], b"["),
        (b"0.00.1 E CANARY", b"["),
        (b"# CANARY", b"["),
    ],
)
def test_any_other_line_keeps_its_head_only(line: bytes, head: bytes) -> None:
    kept = withhold(line)
    assert b"CANARY" not in kept
    assert kept.startswith(head)
    assert b"withheld" in kept


async def test_an_output_is_logged_line_by_line_to_its_unfinished_end(tmp_path: Path) -> None:
    log, stream = LogFile(tmp_path / "e.log"), asyncio.StreamReader()
    stream.feed_data(b"one\rtwo\n" + b"x" * 2 * LINE_BYTES + b"\nthe end")
    stream.feed_eof()
    await log_output(stream, log)
    log.close()
    lines = (tmp_path / "e.log").read_bytes().splitlines()
    assert (lines[:2], lines[-1]) == ([b"one", b"two"], b"the end")
    assert b"".join(lines[2:-1]) == b"x" * 2 * LINE_BYTES


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
