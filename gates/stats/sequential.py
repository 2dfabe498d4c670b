"""Looking all the time: a bound that may be read after every reply, for traffic that has no end.

The gate itself is fixed in size (rules A to D). Once a model is live, every reply may be the one
after which somebody looks; an interval of fixed size would be wrong then, sooner or later with
certainty. A confidence sequence holds at all times together: the chance that it *ever* misses the
true rate is at most 1 - confidence. This one is Robbins' mixture of binomial likelihood ratios
with a beta prior, which is also the wealth of a bettor against the rate (Ville's inequality).

    Robbins (1970), Annals of Mathematical Statistics 41:1397-1409.
    Howard, Ramdas, McAuliffe & Sekhon (2021), Annals of Statistics 49:1055-1080.
    Wald (1945), Annals of Mathematical Statistics 16:117-186, for `sprt_clean_needed`.
"""

from __future__ import annotations

from math import ceil, inf, lgamma, log, log1p

from gates.stats.binomial import root


def log_wealth(bad: int, n: int, rate: float, prior: tuple[float, float] = (0.5, 0.5)) -> float:
    """The log of the mixture's likelihood ratio against `rate`; a bettor's wealth who started with 1."""
    a, b = prior
    good = n - bad
    if (rate <= 0.0 and bad) or (rate >= 1.0 and good):
        return inf
    won = lgamma(a + bad) + lgamma(b + good) - lgamma(a + b + n) + lgamma(a + b) - lgamma(a) - lgamma(b)
    return won - (bad * log(rate) if bad else 0.0) - (good * log1p(-rate) if good else 0.0)


def confidence_sequence(
    bad: int, n: int, confidence: float = 0.95, prior: tuple[float, float] = (0.5, 0.5)
) -> tuple[float, float]:
    """(low, high) for a rate after `bad` of `n`; may be read at every n, for ever.

    The prior chooses where it is tight and never whether it holds. Jeffreys' is the default: at
    0 of n it is nearer to the bound of a fixed n than the uniform one.
    """
    if not 0 <= bad <= n:
        raise ValueError(f"{bad} of {n} is no share")
    if n == 0:
        return 0.0, 1.0
    needed, peak = -log(1.0 - confidence), bad / n

    def kept(rate: float) -> float:
        return needed - log_wealth(bad, n, rate, prior)

    low = 0.0 if bad == 0 else root(lambda rate: -kept(rate), 0.0, peak)
    high = 1.0 if bad == n else root(kept, peak, 1.0)
    return low, high


def clean_needed(rate: float, confidence: float = 0.95, prior: tuple[float, float] = (0.5, 0.5)) -> int:
    """How many clean replies bring the sequence's upper bound down to `rate`."""
    n = 1
    while log_wealth(0, n, rate, prior) < -log(1.0 - confidence):
        n += 1
    return n


def sprt_clean_needed(good: float, bad: float, alpha: float = 0.05, beta: float = 0.05) -> int:
    """How many clean replies Wald's sequential test needs to accept `good` against `bad`.

    Rates of failure. For 0.25 % against 2 % it is 167: nothing is saved over 165, so the gate is
    not sequential.
    """
    return ceil(log(beta / (1.0 - alpha)) / (log1p(-bad) - log1p(-good)))
