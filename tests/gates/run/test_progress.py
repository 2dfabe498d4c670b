"""What a run shows: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from gates.contracts.sample import TransportFault
from gates.run.progress import ProgressBar, ProgressLines, make_progress
from tests.gates.run.parts import sample

LOST = replace(sample(), fault=TransportFault("timeout", "x"), retries=(TransportFault("timeout", "x"),))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_a_log_gets_lines() -> None:
    """By what the stream is."""
    assert isinstance(make_progress("gate", Terminal()), ProgressBar)
    assert isinstance(make_progress("gate", io.StringIO()), ProgressLines)


def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With counts, and the time left at the rate so far, what was on file before left out of it."""
    clock = {"now": 100.0}
    monkeypatch.setattr("gates.run.progress.time.monotonic", lambda: clock["now"])
    log = io.StringIO()
    told = ProgressLines("gate", log)
    told.start(total=90, present=10)
    for now in (104.0, 110.0, 111.0, 119.0):
        clock["now"] = now
        told.sample(LOST if now == 110.0 else sample())
    told.stop()

    assert log.getvalue().splitlines() == [
        "gate: 12/90, 1 lost, 1 retried, 6 min 30 s left",
        "gate: 14/90, 1 lost, 1 retried, 6 min 01 s left",
    ]


def test_a_run_that_asked_nothing_has_no_time_left() -> None:
    """And does not divide by it."""
    log = io.StringIO()
    told = ProgressLines("gate", log)
    told.start(total=5, present=5)
    told.stop()

    assert log.getvalue() == "gate: 5/5, 0 lost, 0 retried\n"


def test_the_bar_shows_counts_and_draws_only_when_it_is_told_something() -> None:
    """No thread of its own disturbs a clock."""
    terminal = Terminal()
    bar = ProgressBar("gate", terminal)
    bar.start(total=3, present=1)
    bar.sample(LOST)
    before = terminal.getvalue()
    bar.stop()

    assert "gate" in before and "2/3" in before and "1 lost, 1 retried" in before
    assert bar._bar.live._refresh_thread is None
