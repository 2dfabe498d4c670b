"""When and where the parts of a session run, if each takes what it is expected to."""

from typing import Any

import pytest

from tests.gpu.__main__ import main
from tests.gpu.parts import PARTS, GpuPart
from tests.gpu.schedule import PlacedPart, plan_table, planned


def part(name: str, expected: float, **more: Any) -> GpuPart:
    return GpuPart(name, "true", **{"seconds": 1000.0, "expected": expected, **more})


def lines(plan: list[PlacedPart]) -> list[tuple[str, int, float, float]]:
    return [(one.part.name, one.gpu, one.began, one.until) for one in plan]


def test_each_gpu_takes_the_next_part_that_it_can_do() -> None:
    parts = part("a", 50), part("b", 20), part("c", 10, after=("b",)), part("d", 10)
    assert lines(planned(parts, 2, 100)) == [
        ("a", 0, 0, 50), ("b", 1, 0, 20), ("c", 1, 20, 30), ("d", 1, 30, 40),
    ]  # fmt: skip


def test_what_cannot_end_in_time_is_not_begun_and_what_can_goes_before_it() -> None:
    parts = part("long", 90), part("short", 20), part("keeps", 90, least=30.0)
    assert lines(planned(parts, 1, 80)) == [("short", 0, 0, 20), ("keeps", 0, 20, 80)]


def test_what_needs_a_part_that_is_cut_off_is_not_begun() -> None:
    assert [
        one.part.name for one in planned([part("a", 90, least=10.0), part("b", 0, after=("a",))], 2, 50)
    ] == ["a"]


def test_what_an_earlier_session_has_done_counts_as_done() -> None:
    assert [one.part.name for one in planned([part("b", 1, after=("a",))], 1, 10, ["a"])] == ["b"]
    assert planned([part("b", 1, after=("a",))], 1, 10) == []


@pytest.mark.parametrize("one", PARTS, ids=lambda one: one.name)
def test_a_part_that_is_begun_can_end_before_its_limit(one: GpuPart) -> None:
    assert 0 < one.needs <= one.expected < one.seconds


def test_the_plan_says_what_is_cut_off_and_what_is_left_out() -> None:
    parts = part("a", 90, least=10.0), part("b", 600)
    table = plan_table(parts, planned(parts, 1, 75))
    assert (
        "| a | 0 | 0:00 | 1:15 (cut off) |" in table
        and "| b | | not begun | expected to take 10:00 |" in table
    )


def test_a_plan_needs_no_gpu_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", "--gpus", "2", "--minutes", "30", "--out", "/nowhere"]) == 0
    assert "| chain | 0 | 0:00 | 15:00 |" in capsys.readouterr().out
