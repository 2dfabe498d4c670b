"""Confidence sequences: bounds that hold at all times together, so that one may look after every reply and stop when it is decided.

A bettor starts with 1 and bets against "the mean of these values in [0, 1] is at most so much". If that is true, the wealth ever reaches
1 / alpha with probability alpha at most (Ville 1939). The wealth is the mean over constant bets, which for counts is a mixture of binomial
likelihood ratios. A value is a reply, or a conversation's share of good turns: these may depend on each other in any way.

Robbins (1970), Annals of Mathematical Statistics 41:1397-1409; Waudby-Smith & Ramdas (2024), J. R. Stat. Soc. B 86:1-27; Orabona & Jun
(2024), IEEE Trans. Inf. Theory 70:436-455: a mixture loses about log(n) / 2 against the best bet in hindsight.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp, log, log1p, pi, sin
from typing import Final

from gates.contracts.verdict import Verdict
from gates.stats.binomial import root

Unit = tuple[float, float]
"""The lowest and the highest value of a conversation, which differ where an answer was lost."""

_BETS: Final = tuple(sin(pi * (i + 0.5) / 64) ** 2 for i in range(32))
"""Shares of the wealth that are staked: quantiles of the arcsine distribution (Cover 1991: universal portfolios)."""


def log_wealth(counts: Mapping[float, int], bound: float) -> float:
    """The log of the wealth of the bettor against a mean of at most `bound`, in (0, 1), after so many of each value."""
    won = [sum(n * log1p(bet * (value / bound - 1.0)) for value, n in counts.items()) for bet in _BETS]
    most = max(won)
    return most + log(sum(exp(each - most) for each in won) / len(won))


def lower_bound(counts: Mapping[float, int], confidence: float = 0.95) -> float:
    """The bound of the mean from below, valid at every n simultaneously."""
    total = sum(value * n for value, n in counts.items())
    if total == 0.0:
        return 0.0
    needed = -log(1.0 - confidence)
    return root(lambda bound: log_wealth(counts, bound) - needed, 0.0, total / sum(counts.values()))


def mean_bounds(units: Sequence[Unit], confidence: float = 0.95) -> tuple[float, float]:
    """Both one-sided bounds of the mean."""
    low, high = Counter(low for low, _ in units), Counter(1.0 - high for _, high in units)
    return lower_bound(low, confidence), 1.0 - lower_bound(high, confidence)


def judge_mean(units: Sequence[Unit], least: float, confidence: float = 0.95) -> tuple[Verdict, int]:
    """Whether the mean is above or below `least`, each wrongly with probability 1 - confidence at most; and after how many units, else all."""
    needed = 1.0 / (1.0 - confidence)
    above = _wealth((low for low, _ in units), least)
    below = _wealth((1.0 - high for _, high in units), 1.0 - least)
    for n, (up, down) in enumerate(zip(above, below, strict=True), start=1):
        if up >= needed or down >= needed:
            return (Verdict.PASS if up >= needed else Verdict.FAIL), n
    return Verdict.INCONCLUSIVE, len(units)


def _wealth(values: Iterable[float], bound: float) -> Iterator[float]:
    """The wealth after each value."""
    won = [1.0 / len(_BETS)] * len(_BETS)
    for value in values:
        times = value / bound - 1.0
        won = [had * (1.0 + bet * times) for had, bet in zip(won, _BETS, strict=True)]
        yield sum(won)
