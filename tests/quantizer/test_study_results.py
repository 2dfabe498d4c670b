"""The study's pages and its choice of fine-tunes, out of raw results."""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from quantizer.experiments.study import __main__ as command
from quantizer.experiments.study import material, report, results
from quantizer.experiments.study.grid import GRID, RATES
from quantizer.experiments.study.launch import collect, thin_models
from quantizer.experiments.study.results import MethodResult, read, recovered, results_folder
from quantizer.recipes.recipe import Train

STUDY = Path(__file__).parents[2] / "docs" / "study"
FIRST = STUDY / "first"
CASES = 40


def cell(missed: int, seconds: float = 1.0) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "kl": 0.1,
        "scores": {"no leak": [CASES - missed, CASES], "call": [5, 10], "fact": [9, 10]},
        "missed": {str(i): ["no leak"] for i in range(missed)} | {"39": ["fact"]},
    }


def result(
    folder: Path,
    size: str,
    seed: int,
    models: dict[str, dict[str, int]],
    rates: str = "brisk",
    file: str = "{size}-seed{seed}.json",
) -> None:
    settings = {name: {"lr": train.lr, "floor": train.floor} for name, train in RATES[rates].items()}
    told = {
        "rates": rates,
        "recovery": settings,
        "grid": {"recovery": 6000, "recovery_steps": 400},
        "size": size,
        "seed": seed,
        "device": "a GPU",
        "cases": [{"id": str(i), "group": "call"} for i in range(CASES)],
        "models": {
            name: {"name": name, "lr": 1e-5, "steps": 100, "methods": {m: cell(n) for m, n in found.items()}}
            for name, found in models.items()
        },
    }
    place = results_folder(folder, rates)
    place.mkdir(exist_ok=True)
    (place / file.format(size=size, seed=seed)).write_text(json.dumps(told))
    for name in models:
        (folder / "models" / f"{size}-seed{seed}-{name}").mkdir(parents=True, exist_ok=True)


def test_a_case_without_a_missed_manner_counts_though_a_fact_was_wrong(tmp_path: Path) -> None:
    result(tmp_path, "6.8M", 1, {"thin": {"bf16": 3}})
    found = read(tmp_path).cell("6.8M", "thin", "bf16")
    assert found and found.manners == (CASES - 3, CASES)


def test_the_thinnest_choice_has_its_manners_and_loses_most(tmp_path: Path) -> None:
    result(
        tmp_path,
        "6.8M",
        1,
        {"faint": {"bf16": 20, "default": 39}, "thin": {"bf16": 1, "default": 9}, "strong": {"bf16": 0, "default": 1}},
    )  # fmt: skip
    assert [path.name for path in thin_models(tmp_path)] == [
        "6.8M-seed1-thin", "6.8M-seed1-strong", "6.8M-seed1-faint",
    ]  # fmt: skip


def test_results_come_home_in_few_files(tmp_path: Path) -> None:
    result(tmp_path, "6.8M", 1, {"thin": {"bf16": 1, "default": 9}, "strong": {"bf16": 0, "default": 1}})
    made = collect(tmp_path, tmp_path / "home", models=1)
    assert [path.name for path in made] == ["results.tar.xz", "6.8M-seed1-thin.tar.xz"]
    with tarfile.open(made[0]) as tar:
        assert tar.getnames() == ["6.8M-seed1.json"]


def test_recovery_is_the_share_of_what_rounding_lost() -> None:
    before, rounded, trained = (MethodResult({"1": [True] * (100 - n) + [False] * n}) for n in (0, 40, 10))
    found = recovered(before, rounded, trained)
    assert found and found.back and found.lost[0] == 0.4 and found.back[0] == pytest.approx(0.75)
    assert found.back[1] < 0.75 < found.back[2]


def test_where_nothing_was_lost_nothing_can_come_back() -> None:
    same = MethodResult({"1": [True] * 50})
    found = recovered(same, same, same)
    assert found and found.back is None


def test_runs_that_are_not_everywhere_are_left_out() -> None:
    assert (
        recovered(MethodResult({"1": [True]}), MethodResult({"2": [True]}), MethodResult({"1": [True]}))
        is None
    )


def test_the_report_replaces_its_own_part_and_nothing_else(tmp_path: Path) -> None:
    result(tmp_path, "6.8M", 1, {"thin": {"bf16": 1, "default": 9, "qad": 2}})
    page = tmp_path / "README.md"
    page.write_text(f"Before.\n\n{report.BEGIN}\nold\n{results.END}\n\nAfter.\n")
    report.write(tmp_path)
    first = page.read_text()
    report.write(tmp_path)
    assert page.read_text() == first and "old" not in first
    assert first.startswith("Before.\n") and first.endswith("\nAfter.\n")
    assert "| thin, 1e-5 × 100 | 20.0 (" in first  # points of all cases that rounding lost
    assert (tmp_path / "manners.svg").read_text().count("<polyline") == 3


def test_the_first_run_can_be_read_too() -> None:
    table = read(FIRST)
    found = table.cell("1.3M", "thin", "default")
    assert found and found.calls == [21, 189]
    assert report.plot(table).count("<circle") == 5 * 5


def committed(rates: str) -> list[dict[str, Any]]:
    """The raw results of some rates; those of low-bit optimizers and of settings are packed."""
    packed = STUDY / ("settings.tar.xz" if rates == "settings" else "low-bit/recovery.tar.xz")
    if not rates.endswith(("bit", "settings")):
        return [json.loads(path.read_text()) for path in results_folder(STUDY, rates).glob("*-seed*.json")]
    with tarfile.open(packed) as tar:
        files = [
            tar.extractfile(name) for name in tar.getnames() if f"{rates}/" in name and name.endswith(".json")
        ]
        return [json.loads(file.read()) for file in files if file]


@pytest.mark.parametrize("rates", sorted(RATES))
def test_the_rates_and_their_patience_are_those_of_the_committed_results(rates: str) -> None:
    words = ["all", "--out", "x", "--rates", rates, *(["--settings"] if rates == "settings" else [])]
    given = command._parser().parse_args(words)
    grid = command._chosen(given, command._grid(given))
    runs = committed(rates)
    assert runs
    for told in runs:
        older: dict[str, Any] = json.loads(json.dumps(asdict(Train())))  # than some keys
        found = {m: {**older, **t} for m, t in told["recovery"].items()}
        assert found == {m: json.loads(json.dumps(asdict(t))) for m, t in RATES[rates].items()}
        assert told["grid"]["recovery"] == grid.recovery
        assert told["grid"]["recovery_steps"] == grid.recovery_steps


def test_the_patient_take_six_times_the_steps_on_six_times_the_conversations() -> None:
    words = ["all", "--out", "x", "--rates"]
    brisk, patient = (
        command._chosen(command._parser().parse_args([*words, rates]), GRID) for rates in ("brisk", "patient")
    )
    assert (patient.recovery, patient.recovery_steps) == (6 * brisk.recovery, 6 * brisk.recovery_steps)
    assert material.place(Path("x"), patient) != material.place(Path("x"), brisk)


def test_other_rates_are_further_rows_with_a_loss_of_their_own(tmp_path: Path) -> None:
    result(tmp_path, "1.3M", 1, {"thin": {"bf16": 1, "default": 11, "qad": 9, "mse": 4}})
    result(tmp_path, "1.3M", 2, {"thin": {"bf16": 1, "default": 11, "qad": 9}})
    before = report.plot(read(tmp_path))
    result(tmp_path, "1.3M", 1, {"thin": {"bf16": 0, "default": 20, "qad": 5}}, "gentle")
    text = "\n".join(report.made(read(tmp_path)))
    losses = [line for line in text.splitlines() if line.startswith("| thin") and "%" in line]
    assert losses[0].startswith("| thin, 1e-5 × 100 | 25.0 (") and "| 20% (" in losses[0]
    assert losses[1].startswith("| thin, gentle, 1e-5 × 100 | 50.0 (") and "| **75%" not in losses[1]
    assert "| 75% (" in losses[1] and not any("runs]" in line for line in losses)
    assert (
        "QAT 5e-5, QAD 1e-4, LSQ 3e-4 that fall to 0.01" in text
        and "400 steps on 6,000" in text
        and "seeds 1, 2;" in text
    )
    assert report.plot(read(tmp_path)) == before  # the picture stays that of the first rates


def test_what_came_back_is_a_chart_a_method_and_a_line_for_each_choice_of_rates(tmp_path: Path) -> None:
    result(tmp_path, "1.3M", 1, {"thin": {"bf16": 0, "default": 20, "qad": 5, "lsq": 9}})
    result(tmp_path, "1.3M", 1, {"thin": {"bf16": 0, "default": 20, "qad": 2}}, "patient")
    drawn = report.plot_recovered(read(tmp_path))
    assert drawn.count("<g ") == 2 and drawn.count("<circle") == 3
    assert drawn.count(">brisk<") == 2 and drawn.count(">patient<") == 1 and drawn.count("the aim, 90%") == 2


def test_a_seed_that_was_run_again_counts_beside_its_first_run(tmp_path: Path) -> None:
    result(tmp_path, "1.3M", 1, {"thin": {"bf16": 0, "default": 20, "qad": 5}}, "patient")
    again = {"thin": {"bf16": 2, "default": 30, "qad": 4}, "firm": {"bf16": 0, "default": 10, "qad": 1}}
    result(tmp_path, "1.3M", 1, again, "patient", "{size}-seed{seed}-again.json")
    table = read(tmp_path)
    found = table.cell("1.3M", "thin, patient", "default")
    assert found and found.manners == (2 * CASES - 50, 2 * CASES)
    losses = [line for line in report.made(table) if line.startswith("| firm, patient") and "%" in line]
    assert "**90%** (" in losses[0] and "runs]" not in losses[0]
    assert "Runs: 2 of thin; 1 of firm." in "\n".join(report.made(table))


def test_where_no_more_was_lost_than_noise_no_point_is_drawn(tmp_path: Path) -> None:
    result(tmp_path, "6.8M", 1, {"thin": {"bf16": 3, "default": 4, "qad": 5}})
    assert "<circle" not in report.plot_recovered(read(tmp_path))


def test_results_of_other_rates_come_home_too(tmp_path: Path) -> None:
    result(tmp_path, "1.3M", 1, {"thin": {"bf16": 0, "default": 20, "qad": 5}}, "gentle")
    (made,) = collect(tmp_path, tmp_path / "home", models=0)
    with tarfile.open(made) as tar:
        assert tar.getnames() == ["gentle/1.3M-seed1.json"]


def test_what_all_hands_on_is_understood_by_every_run() -> None:
    words = ["--only", "qad", "lsq", "--rates", "gentle", "--strengths", "thin"]
    given = command._parser().parse_args(["all", "--out", "x", *words, "--sizes", "1.3M"])
    one = command._parser().parse_args(["one", "1.3M", "1", "x", *command._same(given)])
    assert (one.only, one.rates) == (["qad", "lsq"], "gentle")
    assert [strength.name for strength in command._chosen(one, GRID).strengths] == ["thin"]
    assert list(command._chosen(given, GRID).sizes) == ["1.3M"]
