"""The page of recovery settings: what came back, over seeds and fine-tunes that all compared cells have."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quantizer.experiments.study import results, settings_page
from quantizer.experiments.study.grid import Tried

CASES = [{"id": f"c{i}", "group": "fact"} for i in range(40)]
LEAN = Tried("qad", 1e-4, 200, "adamw_8bit")
LONG = Tried("qad", 1e-4, 800)


def cell(lost: int, kl: float, tried: Tried | None = None) -> dict[str, Any]:
    missed = {str(i): ["no leak"] for i in range(lost)}
    found = {"missed": missed, "scores": {"fact": [30 - lost, 40]}, "kl": kl, "seconds": 3.0}
    return found | ({"tried": asdict(tried)} if tried else {})


def pack(target: Path, seeds: int, partly: int) -> None:
    with tarfile.open(target, "w:xz") as tar:
        for seed in range(1, seeds + 1):
            methods = {"bf16": cell(0, 0.0), "default": cell(20, 0.04), LEAN.name: cell(10, 0.03, LEAN)}
            if seed <= partly:
                methods[LONG.name] = cell(1, 0.01, LONG)
            models = {"1e-5": {"methods": methods}}
            text = json.dumps({"size": "1.3M", "seed": seed, "cases": CASES, "models": models}).encode()
            about = tarfile.TarInfo(f"settings/1.3M-seed{seed}.json")
            about.size = len(text)
            tar.addfile(about, io.BytesIO(text))


def rows(folder: Path) -> list[list[str]]:
    lines = (folder / "settings.md").read_text().split("\n")
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_a_setting_is_compared_over_its_own_cells(tmp_path: Path) -> None:
    pack(tmp_path / "settings.tar.xz", seeds=3, partly=2)
    settings_page.write(tmp_path)
    _, plain, long, lean = rows(tmp_path)
    assert plain[:6] == ["`default`", "", "", "", "3", "50.0"]
    assert long[:6] == ["qad", "0.0001", "800", "adamw", "2", "97.5"]
    assert long[6].startswith("95 (") and long[9:11] == ["0.01000", "25"]
    assert lean[3:6] == ["adamw_8bit", "3", "75.0"] and lean[6].startswith("50 (")
    assert lean[7:9] == ["50.0", "75.0"]


def test_the_page_keeps_what_stands_around_the_tables(tmp_path: Path) -> None:
    pack(tmp_path / "settings.tar.xz", seeds=1, partly=0)
    page = tmp_path / "settings.md"
    page.write_text(f"# Mine\n{settings_page.BEGIN}\nold\n{results.END}\nafter\n")
    settings_page.write(tmp_path)
    text = page.read_text()
    assert text.startswith("# Mine\n") and text.endswith("\nafter\n") and "old" not in text
    settings_page.write(tmp_path)
    assert page.read_text() == text


def test_where_nothing_was_lost_nothing_comes_back(tmp_path: Path) -> None:
    one = settings_page.SettingResult(None, {("1", "1e-5"): [True] * 40})
    assert settings_page._back(one, one, one, [("1", "1e-5")]) == "no loss beyond noise"
