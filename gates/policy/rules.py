"""The rules that a policy is made of, and their numbers: values only. Pure.

A value that exists is well formed: a number out of its range is refused by its key. The keys of a
policy's tables are the fields here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gates.contracts.verdict import Tier
from gates.policy.decoder import Refused


def between(key: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside [low, high]; NaN is outside."""
    if not low <= value <= high:
        raise Refused(key, f"must be from {low:g} to {high:g}, not {value:g}")


def inside(key: str, value: float) -> None:
    """Refuse a share that is not strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise Refused(key, f"must be above 0 and below 1, not {value:g}")


def _two_stages(n: int, n_max: int) -> None:
    if n < 1:
        raise Refused("n", f"must be at least 1, not {n}")
    if n_max < n:
        raise Refused("n_max", f"must be at least n, which is {n}; equal means no extension")


@dataclass(frozen=True, slots=True)
class Floor:
    """A named gate of the seeds: at least `least` of the `of` named cases succeed."""

    of: int
    least: int

    def __post_init__(self) -> None:
        if self.of < 1:
            raise Refused("of", "must be at least 1")
        between("least", self.least, 1, self.of)


@dataclass(frozen=True, slots=True)
class Zero:
    """Rule A: no failure in `first` prompts; exactly one, outside the named, asks `second` clean ones."""

    first: int
    second: int = 0

    def __post_init__(self) -> None:
        if self.first < 1:
            raise Refused("first", "must be at least 1")
        if self.second < 0:
            raise Refused("second", "must be 0 (no second stage) or more")


@dataclass(frozen=True, slots=True)
class Rate:
    """Rule B: Wilson's one-sided lower bound is at least `least`, of n prompts or after one extension."""

    least: float
    n: int
    n_max: int

    def __post_init__(self) -> None:
        inside("least", self.least)
        _two_stages(self.n, self.n_max)


@dataclass(frozen=True, slots=True)
class Compare:
    """Rule C: Tango's one-sided upper bound of the loss against the baseline is at most `margin`."""

    margin: float
    n: int
    n_max: int

    def __post_init__(self) -> None:
        inside("margin", self.margin)
        _two_stages(self.n, self.n_max)


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one gate. `asks`: which repeats of a prompt count.

    "every" takes a prompt for bad if any repeat at any temperature was; "greedy" looks at the one
    at temperature 0. The sizes are the least numbers of prompts; a suite may hold more.
    """

    tier: Tier
    asks: Literal["every", "greedy"] = "every"
    floor: Floor | None = None
    zero: Zero | None = None
    rate: Rate | None = None
    compare: Compare | None = None

    def __post_init__(self) -> None:
        if not any((self.floor, self.zero, self.rate, self.compare)):
            raise Refused("", "has no rule; give it floor, zero, rate or compare")
        if self.compare and self.asks != "greedy":
            raise Refused("asks", 'must be "greedy" beside compare; pairs are made at temperature 0')


@dataclass(frozen=True, slots=True)
class Ratio:
    """Rule D against the baseline: at most `margin` slower (0.10 is 10 %), by a cluster bootstrap.

    At least `blocks` alternating blocks of both arms, `pairs` pairs in all. `seed` draws the
    resamples, so that a report can be recomputed.
    """

    margin: float
    tier: Tier = "supporting"
    blocks: int = 8
    pairs: int = 100
    resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        inside("margin", self.margin)
        between("blocks", self.blocks, 4, 10_000)  # fewer clusters have no distribution
        between("pairs", self.pairs, self.blocks, 1_000_000)
        between("resamples", self.resamples, 1_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Latency:
    """Rule D: the `quantile` of a metric keeps `limit`, by order statistics; n requests, once extended.

    Times (ttft, first_sentence) in milliseconds stay at or under it; decode, in tokens per second,
    at or over it, and its quantile counts from the slow end: 0.5 is the median either way.
    `per_bucket` asks n requests of every prompt length, each of which has to pass.
    """

    tier: Tier
    limit: float
    n: int
    n_max: int
    quantile: float = 0.5
    per_bucket: bool = False
    ratio: Ratio | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.limit < math.inf:
            raise Refused("limit", f"must be a number above 0, not {self.limit:g}")
        inside("quantile", self.quantile)
        _two_stages(self.n, self.n_max)
