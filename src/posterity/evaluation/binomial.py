"""The binomial distribution, as far as an exact bound of a rate needs it."""

import math

import torch

from posterity.errors import Error

POINTS = 400
"""Of the integral over the misses of a conformal rule."""
TAIL = 12
"""How many standard deviations beyond their mean it goes."""


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


def selected_level(n: int, coverage: float, among: int) -> float:
    """The level at which each of several conformal rules is calibrated, so that any one chosen of them has `coverage`.

    With q the k-th smallest of n calibration scores, the share of new data that q misses has the law
    Beta(n + 1 − k, k), or less (Vovk, 2012). The most that any of m rules misses has a mean of at most
    ∫ min(1, m · P(Beta > u)) du, whatever they have in common; k is the least with which that is 1 − coverage. With
    one rule it is ⌈(n + 1) · coverage⌉.

    Args:
        n: how many calibration data there are
        coverage: the least chance that the chosen rule's set or interval holds the truth
        among: how many rules one is chosen from, by whatever it likes

    Example:
        >>> from posterity.evaluation import selected_level
        >>> [round(selected_level(1000, 0.9, among), 3) for among in (1, 8)]
        [0.9, 0.915]
    """
    if among < 2:
        return coverage
    low, high = math.ceil((n + 1) * coverage - 1e-9), n + 1
    while low < high:
        k = (low + high) // 2
        low, high = (low, k) if _most_missed(n, k, among) <= 1 - coverage else (k + 1, high)
    if low > n:
        raise Error(f"A coverage of {coverage:.3g} of one chosen of {among} takes more than {n} calibration data.")
    return low / (n + 1)


def _most_missed(n: int, k: int, among: int) -> float:
    """∫ min(1, m · P(Beta(n + 1 − k, k) > u)) du, by the trapezoidal rule; P(Beta > u) = P(Binomial(n, u) ≤ n − k)."""
    mean = (n + 1 - k) / (n + 1)
    end = min(1.0, mean + TAIL * math.sqrt((mean * (1 - mean) + 1 / n) / n))
    u = torch.linspace(0, end, POINTS, dtype=torch.float64)[1:-1, None]
    i = torch.arange(n - k + 1, dtype=torch.float64)
    choose = math.lgamma(n + 1) - torch.lgamma(i + 1) - torch.lgamma(n - i + 1)
    tail = (choose + i * u.log() + (n - i) * torch.log1p(-u)).logsumexp(1).exp()
    step = end / (POINTS - 1)
    return step * (0.5 + float((among * tail).clamp(max=1).sum()))
