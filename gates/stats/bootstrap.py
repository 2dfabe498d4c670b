"""Rule D against a baseline: the median over pairs of log(candidate / baseline), on a host that is shared with others.

Pairs of one block share the host's load, and pairs of one prompt its length: both are resampled as whole clusters (pigeonhole
bootstrap), and a pair's weight is the product of both counts. Python promises the same `random()` for a seed in every release.
Owen (2007), Annals of Applied Statistics 1:386-411. Efron & Tibshirani (1993), chapter 13.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt in one block, measured on both arms. Positive log ratios are worse, infinity is a failure."""

    block: Hashable
    prompt: Hashable
    log_ratio: float


@dataclass(frozen=True, slots=True)
class Median:
    """The median and its one-sided bounds at the given confidence, as logarithms."""

    value: float
    low: float
    high: float


def median_log_ratio(
    pairs: Sequence[Pair], *, seed: int, confidence: float = 0.95, resamples: int = 10_000
) -> Median:
    """The median log ratio with bootstrap bounds. Raises ValueError if there are no pairs."""
    if not pairs:
        raise ValueError("there is no pair to compare")
    ordered = sorted(pairs, key=lambda pair: pair.log_ratio)
    values = [pair.log_ratio for pair in ordered]
    blocks, prompts = _index([p.block for p in ordered]), _index([p.prompt for p in ordered])
    random = Random(seed).random
    medians: list[float] = []
    while len(medians) < resamples:
        by_block, by_prompt = _drawn(blocks, random), _drawn(prompts, random)
        weights = [by_block[i] * by_prompt[j] for i, j in zip(blocks, prompts, strict=True)]
        if any(weights):  # in a sparse design, a drawn block and prompt may have no pair
            medians.append(_weighted_median(values, weights))
    medians.sort()
    high = ceil(confidence * resamples) - 1
    return Median(_weighted_median(values, [1] * len(values)), medians[resamples - 1 - high], medians[high])


def _index(labels: Sequence[Hashable]) -> list[int]:
    """Clusters numbered by their sorted names, so that the order of the pairs does not matter."""
    numbers = {label: number for number, label in enumerate(sorted(set(labels), key=repr))}
    return [numbers[label] for label in labels]


def _drawn(members: Sequence[int], random: Callable[[], float]) -> list[int]:
    """How often each cluster was drawn; there are as many draws as clusters."""
    size = max(members) + 1
    counts = [0] * size
    for _ in range(size):
        counts[int(random() * size)] += 1
    return counts


def _weighted_median(values: Sequence[float], weights: Sequence[int]) -> float:
    """The weighted median of sorted values; the mean of two if the weight splits evenly."""
    total, passed = sum(weights), 0
    lower: float | None = None
    for value, weight in zip(values, weights, strict=True):
        if not weight:
            continue
        if lower is not None:
            return (lower + value) / 2.0
        passed += weight
        if 2 * passed > total:
            return value
        if 2 * passed == total:
            lower = value
    raise ValueError("no weight is positive")
