"""Rule C: the loss (b - c) / n against a baseline. Tango's score bounds and McNemar's mid-p.

"McNemar finds no difference" must not count as a pass: with b = 4 and c = 0 it finds none at any n. Tango's interval has a width even
if nothing differs: b = c = 0 gives an upper bound of z² / (n + z²). Tango (1998), Statistics in Medicine 17:891-908. Fagerland,
Lydersen & Laake (2013), BMC Med. Res. Methodol. 13:91. Liu, Hsueh, Hsieh & Chen (2002), Statistics in Medicine 21:231-245.
"""

from math import inf, sqrt

from gates.stats.binomial import pmf, root, tail, z_of


def score(b: int, c: int, n: int, loss: float) -> float:
    """Tango's score statistic for the hypothesis that the true loss is `loss` (his eq. 2.9); negative if less was observed."""
    seen = b - c - n * loss
    linear = (2 * n - b + c) * loss - b - c
    free = c * loss * (1.0 - loss)
    q = (sqrt(linear * linear + 8.0 * n * free) - linear) / (4.0 * n)
    variance = n * (2.0 * q + loss * (1.0 - loss))
    if variance <= 0.0:
        return 0.0 if seen == 0.0 else inf if seen > 0.0 else -inf
    return seen / sqrt(variance)


def tango_upper(b: int, c: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided score upper bound of the loss, in [-1, 1]."""
    if b == n:
        return 1.0
    z = z_of(confidence)
    return root(lambda loss: score(b, c, n, loss) + z, (b - c) / n, 1.0)


def tango_lower(b: int, c: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided score lower bound of the loss."""
    return -tango_upper(c, b, n, confidence)


def tango(b: int, c: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The two-sided score interval of the loss, (low, high)."""
    each = (1.0 + confidence) / 2.0
    return tango_lower(b, c, n, each), tango_upper(b, c, n, each)


def mid_p(b: int, c: int) -> float:
    """One-sided McNemar mid-p: small if the candidate lost more than it won by chance alone."""
    return 1.0 if b + c == 0 else tail(b, b + c, 0.5) - 0.5 * pmf(b, b + c, 0.5)
