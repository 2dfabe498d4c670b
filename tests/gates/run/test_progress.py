"""What a run shows: a bar on a terminal, now and then a line elsewhere."""

import io
from dataclasses import replace

import pytest

from gates.contracts.sample import TransportFault
from gates.run.progress import Display
from tests.gates.run.parts import sample

LOST = replace(sample(), fault=TransportFault("timeout", "x"), retries=(TransportFault("timeout", "x"),))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr("gates.run.progress.time.monotonic", lambda: clock["now"])
    log = io.StringIO()
    told = Display("gate", log)
    told.start(total=90, present=10, later=22)
    for now in (104.0, 110.0, 111.0, 119.0):
        clock["now"] = now
        told.sample(LOST if now == 110.0 else sample())
    told.stop()
    nothing = Display("gate", log)
    nothing.start(total=5, present=5)
    nothing.stop()

    assert log.getvalue().splitlines() == [
        "gate: 12/90, 1 lost, 1 retried, 8 min 20 s left",
        "gate: 14/90, 1 lost, 1 retried, 7 min 46 s left",
        "gate: 5/5, 0 lost, 0 retried",
    ]


def test_a_terminal_gets_a_bar_without_a_thread() -> None:
    terminal = Terminal()
    bar = Display("gate", terminal)
    bar.start(total=3, present=1)
    bar.sample(LOST)
    bar.stop()

    assert "gate" in terminal.getvalue() and "2/3" in terminal.getvalue()
    assert "1 lost, 1 retried" in terminal.getvalue()
    assert bar._bar is not None and bar._bar.live._refresh_thread is None
