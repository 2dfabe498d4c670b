"""The cluster bootstrap of the median log ratio: its draws, its bounds, and how often they hold."""

from math import inf
from random import Random

import pytest

from gates.stats.bootstrap import Pair, median_log_ratio

QUICK = 500  # resamples


def crossed(blocks: int, prompts: int, seed: int, *, middle: float, moods: float, noise: float) -> list[Pair]:
    """Every prompt in every block: a mood of the block, a habit of the prompt, and noise."""
    random = Random(seed)
    block = [random.gauss(0.0, moods) for _ in range(blocks)]
    prompt = [random.gauss(0.0, moods / 2) for _ in range(prompts)]
    return [
        Pair(i, j, middle + block[i] + prompt[j] + random.gauss(0.0, noise))
        for i in range(blocks)
        for j in range(prompts)
    ]


def test_blocks_that_differ_make_the_interval_wide() -> None:
    moody = crossed(8, 25, 4, middle=0.0, moods=0.2, noise=0.02)
    alone = [Pair(number, number, pair.log_ratio) for number, pair in enumerate(moody)]
    clustered = median_log_ratio(moody, seed=1, resamples=QUICK)
    naive = median_log_ratio(alone, seed=1, resamples=QUICK)

    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)


def test_failures_are_infinitely_slow() -> None:
    pairs = crossed(5, 8, 5, middle=0.0, moods=0.02, noise=0.05)

    def failing(share: int) -> float:
        broken = [
            Pair(p.block, p.prompt, inf if i % 20 < share else p.log_ratio) for i, p in enumerate(pairs)
        ]
        return median_log_ratio(broken, seed=1, resamples=QUICK).high

    assert failing(1) < inf
    assert failing(12) == inf


def test_a_sparse_design_draws_again_what_never_met() -> None:
    pairs = [Pair(i, i, 0.1 * i) for i in range(3)]
    found = median_log_ratio(pairs, seed=1, resamples=QUICK)

    assert (found.low, found.high) == pytest.approx((0.0, 0.2))
