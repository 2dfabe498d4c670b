"""The cluster bootstrap of the median log ratio: its draws, its bounds, and how often they hold."""

from __future__ import annotations

from itertools import islice
from math import exp, inf, log
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.stats.bootstrap import Pair, median_log_ratio, splitmix64

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


def test_the_generator_is_splitmix64() -> None:
    """The reference implementation's first numbers for the seed 1234567 (Vigna, splitmix64.c)."""
    first = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]

    assert list(islice(splitmix64(1234567), 4)) == first


def test_a_seed_gives_the_same_bounds_always() -> None:
    """And another one does not."""
    pairs = crossed(6, 10, 1, middle=0.0, moods=0.05, noise=0.1)
    one, again, other = (median_log_ratio(pairs, seed=seed, resamples=QUICK) for seed in (7, 7, 8))

    assert one == again != other


@given(st.randoms())
def test_the_order_of_the_pairs_changes_nothing(random: Random) -> None:
    """A ledger may be written in any order."""
    pairs = crossed(4, 5, 2, middle=0.1, moods=0.05, noise=0.1)
    shuffled = random.sample(pairs, len(pairs))

    assert median_log_ratio(shuffled, seed=1, resamples=50) == median_log_ratio(pairs, seed=1, resamples=50)


def test_the_median_is_the_median() -> None:
    """Of an even number of pairs, halfway."""
    pairs = crossed(4, 7, 3, middle=0.2, moods=0.05, noise=0.1)
    found = median_log_ratio(pairs, seed=1, resamples=QUICK)

    assert found.value == pytest.approx(median(pair.log_ratio for pair in pairs))
    assert found.low <= found.value <= found.high


def test_pairs_that_agree_have_no_spread() -> None:
    """Ten per cent slower everywhere is ten per cent slower."""
    pairs = [Pair(i, j, log(1.1)) for i in range(4) for j in range(5)]
    found = median_log_ratio(pairs, seed=1, resamples=QUICK)

    assert (exp(found.low), exp(found.high)) == pytest.approx((1.1, 1.1))


def test_blocks_that_differ_make_the_interval_wide() -> None:
    """Eight moods are eight pieces of evidence, not two hundred."""
    moody = crossed(8, 25, 4, middle=0.0, moods=0.2, noise=0.02)
    alone = [Pair(number, number, pair.log_ratio) for number, pair in enumerate(moody)]
    clustered = median_log_ratio(moody, seed=1, resamples=QUICK)
    naive = median_log_ratio(alone, seed=1, resamples=QUICK)

    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)


def test_prompts_that_differ_make_the_interval_wide() -> None:
    """Eight prompts are eight pieces of evidence, in however many blocks each was asked."""
    turned = [
        Pair(p.prompt, p.block, p.log_ratio) for p in crossed(8, 25, 4, middle=0.0, moods=0.2, noise=0.02)
    ]
    alone = [Pair(number, number, pair.log_ratio) for number, pair in enumerate(turned)]
    clustered = median_log_ratio(turned, seed=1, resamples=QUICK)
    naive = median_log_ratio(alone, seed=1, resamples=QUICK)

    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)


def test_of_independent_pairs_the_bounds_are_near_the_order_statistics() -> None:
    """The median of 101 values lies between the 43rd and the 59th, one-sided at 95 % each."""
    pairs = [Pair(i, "one", float(i)) for i in range(1, 102)]
    found = median_log_ratio(pairs, seed=3, resamples=2000)

    assert (found.low, found.value, found.high) == pytest.approx((43, 51, 59), abs=1.5)
    sure = median_log_ratio(pairs, seed=3, resamples=2000, confidence=0.999)
    assert sure.low < found.low and sure.high > found.high


def test_failures_are_infinitely_slow() -> None:
    """A few leave the median where it is; many take the bound, then the median, with them."""
    pairs = crossed(5, 8, 5, middle=0.0, moods=0.02, noise=0.05)

    def failing(share: int) -> float:
        broken = [
            Pair(p.block, p.prompt, inf if i % 20 < share else p.log_ratio) for i, p in enumerate(pairs)
        ]
        return median_log_ratio(broken, seed=1, resamples=QUICK).high

    assert failing(1) < inf
    assert failing(12) == inf


def test_a_sparse_design_draws_again_what_never_met() -> None:
    """Each prompt in one block only: a resample may hold no pair at all."""
    pairs = [Pair(i, i, 0.1 * i) for i in range(3)]
    found = median_log_ratio(pairs, seed=1, resamples=QUICK)

    assert (found.low, found.high) == pytest.approx((0.0, 0.2))


def test_nothing_to_compare_is_refused() -> None:
    """There is no median of nothing."""
    with pytest.raises(ValueError, match="no pair"):
        median_log_ratio([], seed=1)


def test_the_upper_bound_misses_seldom() -> None:
    """60 hosts with moods; the bound is to be below the truth in about 1 of 20, and is in 9 at most."""
    missed = 0
    for seed in range(60):
        pairs = crossed(8, 10, 100 + seed, middle=0.05, moods=0.05, noise=0.1)
        missed += median_log_ratio(pairs, seed=seed, resamples=200).high < 0.05

    assert missed <= 9
