"""Confidence sequences: bounds that hold at all times, for traffic that is judged after every reply.

Robbins' mixture of binomial likelihood ratios with a beta prior (Ville's inequality). Robbins (1970), Annals of Mathematical
Statistics 41:1397-1409; Howard, Ramdas, McAuliffe & Sekhon (2021), Annals of Statistics 49:1055-1080.
"""

from math import inf, lgamma, log, log1p

from gates.stats.binomial import root


def log_wealth(bad: int, n: int, rate: float, prior: tuple[float, float] = (0.5, 0.5)) -> float:
    """The log of the mixture's likelihood ratio against `rate` (the wealth of a bettor who started with 1)."""
    a, b = prior
    good = n - bad
    if (rate <= 0.0 and bad) or (rate >= 1.0 and good):
        return inf
    won = lgamma(a + bad) + lgamma(b + good) - lgamma(a + b + n) + lgamma(a + b) - lgamma(a) - lgamma(b)
    return won - (bad * log(rate) if bad else 0.0) - (good * log1p(-rate) if good else 0.0)


def confidence_sequence(
    bad: int, n: int, confidence: float = 0.95, prior: tuple[float, float] = (0.5, 0.5)
) -> tuple[float, float]:
    """(low, high) for a rate after `bad` of `n`, valid at every n simultaneously. The prior affects the width only."""
    if n == 0:
        return 0.0, 1.0
    needed, peak = -log(1.0 - confidence), bad / n

    def kept(rate: float) -> float:
        return needed - log_wealth(bad, n, rate, prior)

    low = 0.0 if bad == 0 else root(lambda rate: -kept(rate), 0.0, peak)
    high = 1.0 if bad == n else root(kept, peak, 1.0)
    return low, high
