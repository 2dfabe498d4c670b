"""What a session on GPUs does with its parts, with commands that need none."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.__main__ import _chosen, main
from tests.gpu.parts import PARTS, GpuPart
from tests.gpu.session import GpuSession

NOTE = (
    'echo "begin {0} $CUDA_VISIBLE_DEVICES" >> {{place}}/order; sleep {1}; echo "end {0}" >> {{place}}/order'
)


def part(name: str, sleep: float = 0.0, **more: Any) -> GpuPart:
    return GpuPart(name, NOTE.format(name, sleep), **{"seconds": 30.0, "expected": 0.0, **more})


def session(out: Path, *parts: GpuPart, gpus: int = 2, seconds: float = 30.0) -> GpuSession:
    made = GpuSession(parts, gpus, out, seconds, {})
    made.run()
    return made


def order(out: Path) -> list[str]:
    return (out / "order").read_text("utf-8").splitlines()


def test_two_parts_run_at_once_on_a_gpu_each(tmp_path: Path) -> None:
    session(tmp_path, part("a", 1), part("b", 1))
    assert sorted(order(tmp_path)[:2]) == ["begin a 0", "begin b 1"]


def test_parts_that_may_share_a_gpu_leave_the_other_free(tmp_path: Path) -> None:
    session(tmp_path, part("a", 1, beside=True), part("b", 1, beside=True), part("c", 1))
    assert sorted(order(tmp_path)[:3]) == ["begin a 0", "begin b 0", "begin c 1"]


def test_what_needs_a_part_that_failed_is_not_begun(tmp_path: Path) -> None:
    made = session(tmp_path, GpuPart("a", "exit 3", 5, 0), part("b", after=("a",)))
    assert made.done["a"]["code"] == 3 and made.missing == ["a", "b"]
    assert "| a | 0 |" in made.table() and "| b | | | not reached |" in made.table()


def test_a_part_is_ended_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    made = session(tmp_path, GpuPart("a", "sleep 60 & sleep 60", 0.5, 0), gpus=1)
    assert made.done["a"]["code"] is None and made.done["a"]["seconds"] < 20


def test_a_part_is_told_the_time_that_it_has(tmp_path: Path) -> None:
    say = "echo {budget} > {out}/budget"
    session(tmp_path, GpuPart("a", say, 500, 0), GpuPart("b", say, 60, 0), seconds=100)
    told = {name: int((tmp_path / name / "budget").read_text("utf-8")) for name in "ab"}
    assert 60 < told["a"] <= 80 and 30 < told["b"] <= 40


def test_nothing_is_begun_that_cannot_end_in_time(tmp_path: Path) -> None:
    assert session(tmp_path, part("a", expected=60.0), part("b")).missing == ["a"]


def test_a_session_goes_on_where_it_stopped(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    parts = part("a"), GpuPart("b", f"test -e {flag}", 5, 0)
    assert session(tmp_path, *parts).missing == ["b"]
    flag.touch()
    assert session(tmp_path, *parts).missing == []
    assert order(tmp_path) == ["begin a 0", "end a"]
    assert set(json.loads((tmp_path / "gpu.json").read_text("utf-8"))) == {"a", "b"}


def test_what_a_chosen_part_needs_is_chosen_with_it() -> None:
    assert [one.name for one in _chosen(["qad-9b"])] == ["folders-9b", "qad-9b"]


def test_parts_have_names_of_their_own_and_need_what_comes_before_them() -> None:
    names = [one.name for one in PARTS]
    assert len(set(names)) == len(names)
    for at, one in enumerate(PARTS):
        assert set(one.after) <= set(names[:at]), one.name


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.gpu.__main__._gpus", lambda: 0)
    assert main(["--out", str(tmp_path)]) == 69
    assert "needs a CUDA GPU" in capsys.readouterr().err
