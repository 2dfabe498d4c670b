"""The tables in docs/spark.md and docs/quantize.md: `python -m tests.quantizer.plan.handbook` writes them anew.

What is planned is asked of `quantizer.plan`, what was measured is read from docs/study. Each figure says which it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quantizer.plan.machine import GIB, NAMED
from quantizer.plan.memory import DataSize
from quantizer.plan.resources import ResourcePlan, gguf_needed, plan
from quantizer.recipes.recipe import load_recipe
from tests.generated import rewritten
from tests.quantizer.plan.test_against_measurements import STUDY, shape

DOCS: Final = STUDY.parent
NOTES: Final = DataSize(430, 137_600)
"""The field notes' data: 430 conversations, here of 320 tokens each."""
LEAN: Final = ("train.optimizer=adamw_8bit", "train.recompute=true")
NANO_GGUF: Final = "0.3 GiB of host memory, 2 s of processor time, no GPU"
"""annie-nano's folder to Q4_K_M, from start to end of the command: 263 MiB and 2.2 s, on two shared cores, 2026-11-24."""
FEW: Final = ("train.optimizer=adamw_4bit", "train.recompute=true")


@dataclass(frozen=True, slots=True)
class Row:
    """A command on a model. measured: the row's name in a file of docs/study/low-bit. notes: what the field notes
    measured on a Spark. step, data: its step in docs/study/whole-path.json, and how many tokens that had."""

    verb: str
    recipe: str
    changes: tuple[str, ...] = ()
    model: str = "9B"
    measured: str = ""
    notes: str = ""
    step: str = ""
    data: str = ""

    @property
    def command(self) -> str:
        extra = "".join(f" --set {change}" for change in self.changes)
        named = "" if self.verb == self.recipe else f" --recipe {self.recipe}"
        return f"`{self.verb}{named}{extra}`"


ROWS: Final = (
    Row("ptq", "default", notes="16.7 GB, 2.7 to 3.8 min (ModelOpt)", step="ptq", data="323,323 tokens"),
    Row("ptq", "mse"),
    Row("ptq", "awq_lite", step="awq", data="86,599 tokens"),
    Row("qat", "qat", LEAN, measured="qat, 2 rows", notes="82 to 92 GB, 53 min (another trainer)"),
    Row("qad", "qad", LEAN, measured="qad, 2 rows"),
    Row("qat", "qat", FEW, "27B", measured="27B QAT, 4 bits"),
    Row("qad", "qad", FEW, "27B", measured="27B QAD, 4 bits"),
)


def spark() -> str:
    """For each command: what is planned on a Spark, and what was measured, with where."""
    lines = [
        "| `manners quantize` … | model | memory on a Spark, planned | time there, planned | GPU, measured | field notes, measured on a Spark |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        made = planned(row, "spark")
        found = measured(row)
        lines.append(
            f"| {row.command} | {row.model} | {made.needed['memory'] / GIB:.0f} GiB | {_minutes(made.seconds)} "
            f"| {found or 'not yet'} | {row.notes} |"
        )
    for kind in ("q4_k_m", "f16"):
        needed = gguf_needed(shape("9B"), kind)
        lines.append(
            f"| `gguf --type {kind}` | 9B | {needed['memory'] / GIB:.0f} GiB, {needed['disk'] / GIB:.0f} GiB of disk | | {_gguf() if kind == 'q4_k_m' else 'not yet'} | |"
        )
    return "\n".join(lines) + "\n"


def sizes() -> str:
    """For each command at nano, 0.47B and 9B: peak of GPU memory and time."""
    lines = [
        "| `manners quantize` … | annie-nano, 7 M, one H100, measured | 0.47 B, one H100 | 9 B, one H200 |",
        "|---|---|---|---|",
    ]
    for row in ROWS[:5]:
        half = planned(Row(row.verb, row.recipe, model="0.47B"), "h100")
        nine = planned(row, "h200")
        found = measured(row)
        lean = " (8-bit moments, recomputed)" if row.changes else ""
        lines.append(
            f"| {Row(row.verb, row.recipe).command} | {_nano(row.recipe)} "
            f"| planned {_peak(half)}, {_minutes(half.seconds)}{_half(row.recipe)} "
            f"| planned {_peak(nine)}, {_minutes(nine.seconds)}{lean}; {f'measured {found}' if found else 'not measured yet'} |"
        )
    files = [gguf_needed(shape(name), "q4_k_m")["memory"] / GIB for name in ("0.47B", "9B")]
    half_host, nine_host = (f"planned {size:.1f} GiB of host memory" for size in files)
    lines.append(f"| `gguf --type q4_k_m` | {NANO_GGUF} | {half_host} | {nine_host}; measured {_gguf()} |")
    return "\n".join(lines) + "\n"


def planned(row: Row, machine: str) -> ResourcePlan:
    """The plan of a row for a machine, with as much data as the field notes had."""
    return plan(shape(row.model), load_recipe(row.recipe, row.changes), NAMED[machine], NOTES)


def measured(row: Row) -> str:
    """The committed peak of a row, its rate if it is of today's code, and the machine; empty if there is none."""
    if row.step:
        step, run = _step(row.step)
        gpu = run["gpu"].removeprefix("NVIDIA ")
        return f"{step['device_allocated_gib']:.1f} GiB, {step['seconds']:.0f} s with {row.data}, one {gpu}"
    for name, rate in (("low-bit/training_speed.json", True), ("low-bit/real_size.json", False)):
        document = _json(name)
        for one in document["results"]:
            if one["name"] == row.measured:
                peak = max(part["allocated_gib"] for part in one.get("parts", {"": one}).values())
                speed = f", {one['tokens_per_second']:,.0f} tokens/s" if rate and "before" not in one else ""
                return f"{peak:.1f} GiB{speed}, one {document['gpu'].removeprefix('NVIDIA ')}"
    return ""


def _step(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A step of the whole path, and the document that it is in."""
    document = _json("whole-path.json")
    return next(step for step in document["steps"] if step["name"] == name), document


def _gguf() -> str:
    step, run = _step("gguf")
    return f"{step['host_gib']:.1f} GiB of host memory, {step['seconds']:.0f} s on {run['cpus']} cores"


def _nano(recipe: str) -> str:
    (row,) = [one for one in _json("recipes/recipes.json")["recipes"] if one["recipe"] == recipe]
    return f"{row['peak_memory_bytes'] / GIB:.2f} GiB, {row['seconds']:.0f} s"


def _half(recipe: str) -> str:
    found = [one for one in _json("bench.json")["results"] if one["name"] == recipe]
    if not found:
        return ""
    row = found[0]
    return f"; measured {row['bytes'] / GIB:.1f} GiB and {row['tokens_per_second']:,.0f} tokens/s with 16,384 tokens a step"


def _peak(made: ResourcePlan) -> str:
    return f"{made.peak_device / GIB:.1f} GiB"


def _minutes(seconds: Mapping[str, float] | None) -> str:
    total = sum(seconds.values()) if seconds else 0.0
    return f"{total:.0f} s" if total < 90 else f"{total / 60:.0f} min"


def _json(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((STUDY / name).read_text("utf-8"))
    return document


PARTS: Final[Mapping[str, tuple[str, Callable[[], str]]]] = {
    "spark.md": ("commands", spark),
    "quantize.md": ("sizes", sizes),
}


def written(name: str, document: str) -> str:
    """A document with its table made anew. Raises ValueError where a mark is missing."""
    part, make = PARTS[name]
    return rewritten(document, part, make())


def main() -> None:
    """Write both."""
    for name in PARTS:
        path: Path = DOCS / name
        path.write_text(written(name, path.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
