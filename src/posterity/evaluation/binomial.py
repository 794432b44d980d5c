"""The binomial distribution, as far as an exact bound of a rate needs it."""

import math

import torch

from posterity.errors import Error


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(at most k of n) where each happens with probability p: Σ_{i ≤ k} C(n, i) p^i (1 − p)^(n − i), in logarithms.

    Args:
        k: how many at most
        n: of how many
        p: the probability of each, from 0 to 1
    """
    if k < 0:
        return 0.0
    if k >= n or p <= 0:
        return 1.0
    if p >= 1:
        return 0.0
    i = torch.arange(k + 1, dtype=torch.float64)
    choose = math.lgamma(n + 1) - torch.lgamma(i + 1) - torch.lgamma(n - i + 1)
    terms = choose + i * math.log(p) + (n - i) * math.log1p(-p)
    return min(1.0, float(terms.logsumexp(0).exp()))


def rate_bound(k: int, n: int, confidence: float = 0.95) -> float:
    """The upper bound of a rate that gave k of n, exact at any n (Clopper and Pearson, 1934).

    The p with P(at most k of n | p) = 1 − confidence: the true rate is below it in at least `confidence` of all
    repetitions. 1 where all n happened, or none were tried.

    Args:
        k: how often it happened
        n: of how many
        confidence: in (0, 1), one-sided

    Example:
        >>> from posterity.evaluation import rate_bound
        >>> round(rate_bound(0, 100), 4)  # no error in a hundred: 1 − 0.05^(1/100), the rule of three
        0.0295
    """
    if not 0 <= k <= n:
        raise Error(f"A rate needs 0 ≤ k ≤ n; got {k} of {n}.")
    if not 0 < confidence < 1:
        raise Error(f"A confidence lies between 0 and 1; got {confidence}.")
    if k == n:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_cdf(k, n, middle) > 1 - confidence else (low, middle)
    return high
