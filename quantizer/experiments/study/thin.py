"""What survives of thin fine-tunes together, with intervals by a bootstrap over cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quantizer.experiments.study.survival import SurvivalCell

THIN: Final = ("2e-6", "lora-1e-5", "5e-6", "1e-5")
DRAWS: Final = 4000
Interval = tuple[float, float, float]
Sums = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ThinSurvival:
    """Shares of one size, each with an interval of 95 %. manners, facts: that survived, of those that the fine-tunes had.
    apart: facts less manners. lost: manners lost, net, of all cases."""

    manners: Interval
    facts: Interval
    apart: Interval
    lost: Interval


def thin(cells: Sequence[SurvivalCell]) -> ThinSurvival:
    """Of the cells of one size and one method, over seeds and fine-tunes. Each draw takes the same cases in all of them, as
    these are asked in all."""
    sums = _by_case(cells)
    asked = len(cells) * len(sums)
    whole = sums.sum(axis=0, keepdims=True)
    rng = np.random.default_rng(1)
    times = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=DRAWS)
    drawn = times @ sums
    drawn = drawn[(drawn[:, 0] > 0) & (drawn[:, 2] > 0)]

    def found(share: Callable[[Sums], Sums]) -> Interval:
        low, high = np.quantile(share(drawn), (0.025, 0.975))
        return float(share(whole)[0]), float(low), float(high)

    return ThinSurvival(
        found(_manners),
        found(_facts),
        found(lambda sums: _facts(sums) - _manners(sums)),
        found(lambda sums: (sums[:, 0] - sums[:, 4]) / asked),
    )


def _manners(sums: Sums) -> Sums:
    return sums[:, 1] / sums[:, 0]


def _facts(sums: Sums) -> Sums:
    return sums[:, 3] / sums[:, 2]


def _by_case(cells: Sequence[SurvivalCell]) -> Sums:
    """For each case, over the cells: manners that were kept before, and also after; facts that were known before, and also
    after; manners that were kept after."""
    rows = []
    for pairs in zip(*(cell.pairs for cell in cells), strict=True):
        kept = [after[0] for before, after in pairs if before[0]]
        known = [bool(after[1]) for before, after in pairs if before[1]]
        rows.append([len(kept), sum(kept), len(known), sum(known), sum(after[0] for _, after in pairs)])
    return np.array(rows, dtype=np.float64)
