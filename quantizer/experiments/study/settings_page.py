"""Write the page of recovery settings: `python -m quantizer.experiments.study settings-report docs/study`."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from quantizer.experiments.study.grid import Tried
from quantizer.experiments.study.ladder import LADDER
from quantizer.experiments.study.results import MANNERS, MethodResult, recovered, write_between_marks
from quantizer.experiments.study.survival import FACT, RAW

PAGE, PACKED = "settings.md", "settings.tar.xz"
BEGIN: Final = "<!-- made by python -m quantizer.experiments.study settings-report -->"
COMPARED: Final = ("bf16", "default")
Key = tuple[str, str]
"""A seed and a fine-tune."""


@dataclass
class SettingResult:
    """One method of one size over seeds and fine-tunes. kept: for each, for each case, whether all manners were kept. facts:
    for each, the number that was right."""

    tried: Tried | None
    kept: dict[Key, list[bool]] = field(default_factory=dict)
    facts: dict[Key, tuple[int, int]] = field(default_factory=dict)
    kl: dict[Key, float] = field(default_factory=dict)
    seconds: dict[Key, float] = field(default_factory=dict)


def write(folder: Path) -> None:
    """Write settings.md between its marks from the raw results in settings.tar.xz."""
    write_between_marks(folder / PAGE, "Settings of recovery", BEGIN, made(read(folder / PACKED)))


def read(packed: Path) -> dict[str, dict[str, SettingResult]]:
    """The settings of each size by name, from a file as `collect` packs it."""
    found: dict[str, dict[str, SettingResult]] = {}
    with tarfile.open(packed) as tar:
        for member in tar:
            if RAW.search(member.name) and (file := tar.extractfile(member)):
                with file:
                    _add(found, json.load(file))
    return found


def _add(found: dict[str, dict[str, SettingResult]], record: Mapping[str, Any]) -> None:
    settings = found.setdefault(record["size"], {})
    for strength, model in record["models"].items():
        key = (str(record["seed"]), strength)
        for name, cell in model["methods"].items():
            if "missed" not in cell:
                continue
            tried = Tried(**cell["tried"]) if "tried" in cell else None
            one = settings.setdefault(name, SettingResult(tried))
            count = len(record["cases"])
            one.kept[key] = [MANNERS.isdisjoint(cell["missed"].get(str(i), ())) for i in range(count)]
            one.facts[key] = tuple(cell["scores"][FACT])
            one.kl[key], one.seconds[key] = cell["kl"], cell["seconds"]


def made(found: Mapping[str, Mapping[str, SettingResult]]) -> Iterator[str]:
    """The text between the marks, line by line."""
    for size in LADDER.sizes:
        settings = found.get(size, {})
        if not all(name in settings for name in COMPARED):
            continue
        whole = settings["default"]
        tunes = sorted({strength for _, strength in whole.kept})
        seeds = sorted({seed for seed, _ in whole.kept})
        yield f"## {size}: fine-tunes {', '.join(f'`{name}`' for name in tunes)}, seeds {', '.join(seeds)}"
        yield ""
        yield "| method | peak | steps | optimizer | cells | manners, % | manners back, % | facts, % | facts in BF16, % | divergence | of `default`'s, % | seconds |"
        yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
        for one in _in_order(settings):
            yield _row(one, settings)
        yield ""


def _in_order(settings: Mapping[str, SettingResult]) -> list[SettingResult]:
    tried = [one for name, one in settings.items() if name not in COMPARED and one.tried]
    tried.sort(key=lambda one: _order(one.tried))
    return [settings["default"], *tried]


def _order(tried: Tried | None) -> tuple[Any, ...]:
    assert tried is not None
    return tried.method, tried.optimizer != "adamw", tried.optimizer, tried.steps, tried.lr


def _row(one: SettingResult, settings: Mapping[str, SettingResult]) -> str:
    keys = sorted(one.kept)
    before, rounded = (settings[name] for name in COMPARED)
    keys = [key for key in keys if key in before.kept and key in rounded.kept]
    tried = one.tried
    named = (
        (tried.method, f"{tried.lr:g}", str(tried.steps), tried.optimizer)
        if tried
        else ("`default`", "", "", "")
    )
    right, asked = _facts(one, keys)
    known, _ = _facts(before, keys)
    kept = [mark for key in keys for mark in one.kept[key]]
    kl, plain = (_mean([each.kl[key] for key in keys]) for each in (one, rounded))
    return " | ".join(
        (
            "| " + named[0], *named[1:], str(len(keys)), f"{100 * sum(kept) / len(kept):.1f}",
            _back(before, rounded, one, keys) if tried else "", f"{100 * right / asked:.1f}",
            f"{100 * known / asked:.1f}", f"{kl:.5f}", f"{100 * kl / plain:.0f}",
            f"{_mean([one.seconds[key] for key in keys]):.0f} |",
        )
    )  # fmt: skip


def _facts(one: SettingResult, keys: Sequence[Key]) -> tuple[int, int]:
    pairs = [one.facts[key] for key in keys]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _back(before: SettingResult, rounded: SettingResult, one: SettingResult, keys: Sequence[Key]) -> str:
    """How much of the manners that rounding took, net, came back; nothing where the loss may be noise."""
    found = recovered(_result(before, keys), _result(rounded, keys), _result(one, keys))
    if found is None or found.back is None or found.lost[1] <= 0:
        return "no loss beyond noise"
    value, low, high = (f"{100 * share:.0f}" for share in found.back)
    return f"{value} ({low} to {high})"


def _result(one: SettingResult, keys: Sequence[Key]) -> MethodResult:
    return MethodResult(kept={" ".join(key): one.kept[key] for key in keys})


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
