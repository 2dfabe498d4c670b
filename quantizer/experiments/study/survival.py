"""What of a fine-tune survives rounding, by the size of its change against NVFP4's steps, and a prediction of it.

  survival of manners     of the cases in which the fine-tune kept all manners, the share in which the rounded model does
  survival of knowledge   of the facts that the fine-tune knew, the share that the rounded model knows
  survival of the change  (CE of the base - CE of the fine-tune) after rounding both, over the same before

`quantizer.verify.prediction` predicts the first two; here it is fitted, as a logistic regression, and tested.
"""

from __future__ import annotations

import json
import math
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from quantizer.experiments.study.grid import BASE, FIRST_RATES, RATES
from quantizer.experiments.study.results import MANNERS, results_folder
from quantizer.verify.prediction import Prediction

FACT: Final = "fact"
RAW: Final = re.compile(r"-seed\d+\.json$")
"""The names of raw results; logs may be beside them."""
ROUNDS: Final = 50
RIDGE: Final = 1e-3
"""Keeps a fit finite where nothing was lost."""


Mark = tuple[bool, bool | None]
"""Of a case: whether all manners were kept, and whether the fact was right (None for another kind of case)."""


@dataclass(frozen=True, slots=True)
class SurvivalCell:
    """One method on one fine-tune. weights: in the layers that are quantized. ratio: the change over the step, as root mean
    squares. manners, facts: (survived, asked), of the cases that the fine-tune got right. gained: cases whose manners only
    the rounded model kept. pairs: of each case, the marks of the fine-tune and of the rounded model."""

    size: str
    weights: int
    seed: int
    source: str
    strength: str
    ratio: float
    method: str
    manners: tuple[int, int]
    gained: int
    facts: tuple[int, int]
    record: Mapping[str, Any]
    pairs: tuple[tuple[Mark, Mark], ...] = ()


def read_cells(ladder: Path, older: Path | None = None) -> list[SurvivalCell]:
    """Every cell of the ladder, a file as `collect` packs it, and those of the study before it. Of these it is known how far the weights moved, not by
    how many steps; the ladder says how the two relate in a model of the same size."""
    with tarfile.open(ladder) as packed:
        records = [(member.name, _unpacked(packed, member)) for member in packed if RAW.search(member.name)]
    found = [cell for name, record in records for cell in _cells(f"ladder/{name}", record, {})]
    if older is None:
        return found
    steps = _steps(record for _, record in records)
    for rates in RATES:
        for path in sorted(results_folder(older, rates).glob("*-seed*.json")):
            record = json.loads(path.read_text("utf-8"))
            if isinstance(record["models"], dict) and record["size"] in steps:
                name = path.stem if rates == FIRST_RATES else f"{rates}/{path.stem}"
                found += _cells(name, record, steps)
    return found


def _unpacked(packed: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
    file = packed.extractfile(member)
    assert file is not None
    with file:
        record: dict[str, Any] = json.load(file)
    return record


def ratio_of(layers: Iterable[Mapping[str, Any]]) -> float:
    """The change over the step of all layers, as root mean squares over their weights."""
    pairs = [(layer["weights"], layer["delta_to_step"]) for layer in layers]
    return math.sqrt(sum(n * ratio**2 for n, ratio in pairs) / sum(n for n, _ in pairs))


def weights_of(shape: Mapping[str, int]) -> int:
    """The weights of a decoder's linear layers."""
    heads = shape["head_dim"] * (2 * shape["heads"] + 2 * shape["kv_heads"])
    return shape["layers"] * shape["hidden"] * (heads + 3 * shape["intermediate"])


def _steps(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """By size: the ratio to the step for each unit of relative movement."""
    found: dict[str, list[float]] = {}
    for record in records:
        for model in record["models"].values():
            if model.get("moved") and "risk" in model:
                found.setdefault(record["size"], []).append(ratio_of(model["risk"]) / model["moved"])
    return {size: sum(values) / len(values) for size, values in found.items()}


def _cells(source: str, record: Mapping[str, Any], steps: Mapping[str, float]) -> list[SurvivalCell]:
    cases, found = record["cases"], []
    for name, model in record["models"].items():
        cells = {m: c for m, c in model["methods"].items() if "missed" in c}
        if "bf16" not in cells or not isinstance(cases, list):
            continue
        if "risk" in model:
            ratio = ratio_of(model["risk"])
        elif name == BASE:
            ratio = 0.0
        elif "moved" in model and steps:
            ratio = model["moved"] * steps[record["size"]]
        else:
            continue
        before = _marks(cases, cells["bf16"])
        for method, cell in cells.items():
            pairs = tuple(zip(before, _marks(cases, cell), strict=True))
            found.append(
                SurvivalCell(
                    record["size"], weights_of(record["shape"]), record["seed"], source, name, ratio, method,
                    *_survived(pairs), cell, pairs,
                )
            )  # fmt: skip
    return found


def _marks(cases: Sequence[Mapping[str, str]], cell: Mapping[str, Any]) -> list[Mark]:
    marks: list[Mark] = []
    for i, case in enumerate(cases):
        missed = cell["missed"].get(str(i), ())
        marks.append((MANNERS.isdisjoint(missed), FACT not in missed if case["group"] == FACT else None))
    return marks


def _survived(pairs: Sequence[tuple[Mark, Mark]]) -> tuple[tuple[int, int], int, tuple[int, int]]:
    kept = [now[0] for was, now in pairs if was[0]]
    gained = sum(now[0] for was, now in pairs if not was[0])
    known = [bool(now[1]) for was, now in pairs if was[1]]
    return (sum(kept), len(kept)), gained, (sum(known), len(known))


# ------------------------------------------------------------------------------------------------ the fit


def _features(ratio: float, weights: int) -> tuple[float, float, float]:
    return 1.0, math.log10(ratio), math.log10(weights / 1e6)


def fit(counts: Sequence[tuple[float, int, tuple[int, int]]]) -> Prediction:
    """The most likely coefficients, with a slight preference for small ones. counts: (ratio, weights, (survived, asked))."""
    x = np.array([_features(ratio, weights) for ratio, weights, _ in counts])
    right, asked = (np.array([pair[i] for *_, pair in counts], dtype=float) for i in (0, 1))
    found = np.zeros(3)
    for _ in range(ROUNDS):
        p = 1 / (1 + np.exp(-np.clip(x @ found, -30, 30)))
        slope = x.T @ (right - asked * p) - RIDGE * found
        curve = (x.T * (asked * p * (1 - p))) @ x + RIDGE * np.eye(3)
        step = np.linalg.solve(curve, slope)
        found = found + step * min(1.0, 2.0 / max(1e-9, float(np.abs(step).max())))
    return Prediction(*(round(float(value), 4) for value in found))


@dataclass(frozen=True, slots=True)
class FitError:
    """Of predictions of shares, in points: mean and largest distance, and the mean distance of the share that the training
    cells had together, for comparison."""

    cells: int
    mean: float
    largest: float
    constant: float


def held_out_error(
    model: Prediction, trained: Sequence[SurvivalCell], held_out: Sequence[SurvivalCell], what: str
) -> FitError:
    """The error of a prediction on cells that it was not fitted on."""
    right, asked = (sum(getattr(cell, what)[i] for cell in trained) for i in (0, 1))
    common = right / asked
    apart, plain = [], []
    for cell in held_out:
        survived, count = getattr(cell, what)
        if count:
            apart.append(100 * abs(model(cell.ratio, cell.weights) - survived / count))
            plain.append(100 * abs(common - survived / count))
    return FitError(len(apart), sum(apart) / len(apart), max(apart), sum(plain) / len(plain))


def counts_of(cells: Iterable[SurvivalCell], what: str) -> list[tuple[float, int, tuple[int, int]]]:
    """The cells as `fit` takes them. what: "manners" or "facts"."""
    return [(c.ratio, c.weights, getattr(c, what)) for c in cells if c.ratio > 0 and getattr(c, what)[1]]
