"""Run all sizes and seeds side by side on one device, and collect the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from quantizer.experiments.study import material
from quantizer.experiments.study.grid import RATES, Grid
from quantizer.experiments.study.results import MANNERS, results_folder

GRACE: Final = 40.0
"""Seconds that a run has to finish its cell after its time is up."""
THINNER: Final = 0.97
"""A fine-tune counts as complete if it keeps at least this share of the cases that the best one keeps."""


def everything(
    grid: Grid,
    folder: Path,
    tokenizer: Path,
    *,
    minutes: float,
    processes: int,
    tiny: Sequence[str] = (),
    same: Sequence[str] = (),
    check: bool = True,
) -> None:
    """Run every size and seed, `processes` at a time, for `minutes`.

    tiny: arguments for the check and every run. same: arguments for every run. check: compare CUDA graphs with the same
    work run eagerly first; without, a graph that cannot be recorded is the only sign that they do not work.
    """
    until = time.monotonic() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)
    checked = _begin(folder, "check", ["check", str(folder / "check.json"), *tiny]) if check else None
    if not material.place(folder, grid).exists():
        material.write(folder, grid, Tokenizer.from_file(str(tokenizer)), os.cpu_count() or 1)
    print(f"conversations made, {until - time.monotonic():.0f} s left", flush=True)
    eager = [] if checked is None or _right(checked, folder / "check.json") else ["--eager"]
    waiting = [(size, seed) for seed in grid.seeds for size in reversed(grid.sizes)]
    running: list[subprocess.Popen[bytes]] = []
    while waiting and time.monotonic() < until:
        while waiting and len(running) < processes:
            size, seed = waiting.pop(0)
            words = [
                "one",
                size,
                str(seed),
                str(folder),
                "--tokenizer",
                str(tokenizer),
                "--until",
                str(until),
            ]
            running.append(_begin(folder, f"{size}-seed{seed}", [*words, *eager, *tiny, *same]))
        _wait(running, until)
        running = [one for one in running if one.poll() is None]
    for one in running:
        _end(one, until + GRACE)
    print(f"done, {until - time.monotonic():.0f} s left", flush=True)


def _begin(folder: Path, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    threads = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "quantizer.experiments.study", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | threads,
        )


def _right(checked: subprocess.Popen[bytes], path: Path) -> bool:
    """Whether the check found that graphs compute the right results."""
    _end(checked, time.monotonic() + 120)
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        found = {"right": False}
    print("graphs:", json.dumps(found), flush=True)
    return bool(found["right"])


def _wait(running: list[subprocess.Popen[bytes]], until: float) -> None:
    """Wait until one process has ended or the time is up."""
    while time.monotonic() < until and all(one.poll() is None for one in running):
        time.sleep(0.5)


def _end(one: subprocess.Popen[bytes], until: float) -> None:
    """Wait for a process until the time is up, then terminate it."""
    try:
        one.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        one.terminate()
        one.wait()


# -------------------------------------------------------------------------------------------- bring home


def collect(folder: Path, out: Path, models: int) -> list[Path]:
    """Write results.tar.xz (every JSON file and log), and the BF16 folders of at most `models` fine-tunes.

    May be called while runs are going on.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = [path for path in sorted(folder.glob("*")) if path.suffix in (".json", ".log")]
    for rates in RATES:
        if (place := results_folder(folder, rates)) != folder:
            files += sorted(place.glob("*.json"))
    made = [_packed(out / "results.tar.xz", files, folder)]
    for place in thin_models(folder)[:models]:
        made.append(_packed(out / f"{place.name}.tar.xz", [place], place.parent))
    return made


def thin_models(folder: Path) -> list[Path]:
    """Fine-tunes that deserve a second look, the best first; of the larger size only.

    First those that keep nearly as many cases as the best of their size and seed, ordered by what plain rounding
    costs them; then the others.
    """
    ranked = []
    for path in folder.glob("6.8M-seed*.json"):
        models = json.loads(path.read_text())["models"]
        kept = {
            name: [kept_cases(model["methods"].get(method, {})) for method in ("bf16", "default")]
            for name, model in models.items()
        }
        best = max((pair[0] or 0 for pair in kept.values()), default=0)
        for name, (before, after) in kept.items():
            place = folder / "models" / f"{path.stem}-{name}"
            if before is not None and after is not None and place.exists():
                ranked.append((before >= THINNER * best, before - after, str(place)))
    return [Path(place) for *_, place in sorted(ranked, reverse=True)]


def kept_cases(cell: dict[str, Any]) -> int | None:
    """The number of cases of a cell with all manners kept and the call, if any, right; None without a result."""
    if "missed" not in cell:
        return None
    asked: int = cell["scores"]["no leak"][1]
    return asked - sum(not MANNERS.isdisjoint(names) for names in cell["missed"].values())


def _packed(target: Path, paths: Sequence[Path], root: Path) -> Path:
    with tarfile.open(target, "w:xz") as tar:
        for path in paths:
            tar.add(path, str(path.relative_to(root)))
    return target
